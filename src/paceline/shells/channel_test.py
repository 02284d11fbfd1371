"""Sends a test message through a channel and waits for the result. The API and the command line use it."""

from __future__ import annotations

from collections.abc import Sequence

from paceline.core.batches.calls import CallResult
from paceline.steps.alerts.channels import get_channel
from paceline.steps.alerts.deliver import deliver_test
from paceline.steps.views.alert_report import TrialView
from paceline.wiring import System, open_messenger

LOOK_MS = 200
LATE_MS = 5_000
"""How long to wait for the message after its own deadline."""


def send_test_message(system: System, user: str, channel_id: str, *, own: Sequence[tuple[str, int]] = ()) -> TrialView:
    """Sends one message and returns its outcome. Blocks for as long as the service takes, within the deadline."""
    channel = get_channel(system.store, user, channel_id)
    began_ms = system.clock.now_ms()
    order = deliver_test(
        system.vault, channel, user=user, channel_id=channel_id, secret=system.secret_key, now_ms=began_ms
    )
    messenger = open_messenger(system.settings, system.clock, own=own)
    try:
        messenger.start([order])
        results: list[CallResult] = []
        while not results and system.clock.now_ms() - began_ms < order.timeout_ms + LATE_MS:
            results = messenger.finished(wait_ms=LOOK_MS)
    finally:
        messenger.close()
    took_ms = max(0, system.clock.now_ms() - began_ms)
    if not results:
        return TrialView(channel_id, ok=False, code=None, reason="time-out: no answer", took_ms=took_ms)
    code = results[0].code
    ok = code is not None and 200 <= code < 300
    reason = "" if ok else results[0].reason or f"answered {code}"
    return TrialView(
        channel_id, ok=ok, code=code if channel.kind == "webhook" else None, reason=reason, took_ms=took_ms
    )
