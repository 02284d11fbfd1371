"""View of the chain of reasons, for REST, the command line and the pages."""

from __future__ import annotations

import msgspec

from paceline.core.schema import Instant
from paceline.core.why.chain import LinkName, Why
from paceline.steps.views.eta import EtaView, eta_view
from paceline.steps.views.to_view import to_view


class LinkView(msgspec.Struct, frozen=True):
    """One reason why a run waits or waited.

    ``until``: when the reason ends; a time in the past means that it is over, and null that the end is not known or
    that somebody has to act. ``change``: who can change it, and how.
    """

    link: LinkName
    text: str
    since: Instant | None
    until: Instant | None
    change: str


class WhyView(msgspec.Struct, frozen=True):
    """Why a run waits or went as it did: the reasons in the order in which they are checked.

    ``run``: its id; null if there is no run, and the reasons say why. ``eta``: when it starts; null if that is not
    known.
    """

    run: str | None
    state: str
    chain: list[LinkView]
    eta: EtaView | None


def why_view(why: Why) -> WhyView:
    return WhyView(why.run, why.state, [to_view(link, LinkView) for link in why.chain], eta_view(why.eta))
