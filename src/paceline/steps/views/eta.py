"""When something is expected."""

from __future__ import annotations

import msgspec

from paceline.core.schema import Instant


class EtaView(msgspec.Struct, frozen=True, rename={"from_": "from"}):
    """At the earliest and at the latest, if nothing new comes and nobody changes anything; equal: exactly then."""

    from_: Instant
    to: Instant
