"""The uptime of a monitor as text."""

from __future__ import annotations

from paceline.steps.views.uptime import UptimeView


def uptime_fields(view: UptimeView) -> list[tuple[str, str | None]]:
    shares = {"1d": view.share_1d, "7d": view.share_7d, "30d": view.share_30d, "90d": view.share_90d}
    latency = view.latency_ms
    latencies = {"p50": latency.p50, "p95": latency.p95, "p99": latency.p99}
    return [
        *((f"good {window}", _percent(share)) for window, share in shares.items()),
        *((f"latency {name}", None if ms is None else f"{ms:.4g} ms") for name, ms in latencies.items()),
    ]


def _percent(share: float | None) -> str | None:
    """Returns the share in percent, cut off instead of rounded: 100 % means that nothing was bad."""
    return None if share is None else f"{int(share * 100_000) / 1_000:.3f} %"
