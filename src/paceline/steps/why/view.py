"""View of the chain of reasons, for REST, the command line and the pages."""

from __future__ import annotations

import msgspec

from paceline.core.schema import Instant
from paceline.core.why.chain import LinkName, Why
from paceline.steps.views.eta import EtaView, eta_view
from paceline.steps.views.to_view import to_view


class LinkView(msgspec.Struct, frozen=True):
    """One reason. ``until`` null: not known, or until somebody does what ``change`` says; in the past: it is over."""

    link: LinkName
    text: str
    since: Instant | None
    until: Instant | None
    change: str


class WhyView(msgspec.Struct, frozen=True):
    """``run``: what the chain is about; null: there is no run, and the chain says why. ``eta``: when it starts."""

    run: str | None
    state: str
    chain: list[LinkView]
    eta: EtaView | None


def why_view(why: Why) -> WhyView:
    return WhyView(why.run, why.state, [to_view(link, LinkView) for link in why.chain], eta_view(why.eta))
