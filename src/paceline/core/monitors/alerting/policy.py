"""Alert settings of a monitor: after how many failures, and who is told."""

from __future__ import annotations

from typing import Annotated

import msgspec

from paceline.core.alerts.alert import CHANNELS_MAX
from paceline.core.ids import id_problem
from paceline.core.schema import shown
from paceline.errors import FieldProblem

IN_A_ROW_MAX = 1_000


class AlertPolicy(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """When a monitor counts as failing or recovered, and which channels get its alerts.

    ``after`` failures in a row turn it failing, ``recover`` successes in a row turn it ok again. ``channels`` empty:
    the user's default channels.
    """

    after: Annotated[int, shown(minimum=1, maximum=IN_A_ROW_MAX)] = 1
    """Number of failures in a row that turn health to ``failing``."""
    recover: Annotated[int, shown(minimum=1, maximum=IN_A_ROW_MAX)] = 1
    """Number of successes in a row that turn health back to ``ok``."""
    channels: tuple[str, ...] = ()


DEFAULT = AlertPolicy()


def policy_problems(policy: AlertPolicy) -> list[FieldProblem]:
    problems = [
        FieldProblem(f"/alert/{name}", f"must be from 1 to {IN_A_ROW_MAX}")
        for name, count in (("after", policy.after), ("recover", policy.recover))
        if not 1 <= count <= IN_A_ROW_MAX
    ]
    if len(policy.channels) > CHANNELS_MAX:
        problems.append(FieldProblem("/alert/channels", f"at most {CHANNELS_MAX} channels"))
    for index, name in enumerate(policy.channels[:CHANNELS_MAX]):
        if problem := id_problem(name, f"/alert/channels/{index}"):
            problems.append(problem)
        elif name in policy.channels[:index]:
            problems.append(FieldProblem(f"/alert/channels/{index}", "this channel is named twice; keep one of them"))
    return problems
