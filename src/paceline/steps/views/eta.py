"""View of an expected time."""

from __future__ import annotations

import msgspec

from paceline.core.instants import to_text
from paceline.core.schema import Instant
from paceline.core.why.chain import Eta


class EtaView(msgspec.Struct, frozen=True, rename={"from_": "from"}):
    """Earliest and latest expected time, if no new work comes and nobody changes anything.

    Equal times: exactly then.
    """

    from_: Instant
    to: Instant


def eta_view(eta: Eta | None) -> EtaView | None:
    return None if eta is None else EtaView(to_text(eta.from_ms), to_text(eta.to_ms))
