"""Formats figures and sentences for pages."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

NO_FIGURE = "\N{EN DASH}"


def number(value: float | None) -> str:
    """Returns the figure with commas: 12,345."""
    return NO_FIGURE if value is None else f"{value:,.0f}"


def percent(share: float | None) -> str:
    """Returns 99.94 %, rounded down, so that only a complete share is 100.00 %."""
    return NO_FIGURE if share is None else f"{int(share * 10_000) / 100:.2f} %"


def milliseconds(value: float | None) -> str:
    """Returns 412 ms or 3.1 s."""
    if value is None:
        return NO_FIGURE
    if value < 1:
        return "<1 ms"
    return f"{value:.0f} ms" if value < 1_000 else f"{value / 1_000:.1f} s"


def seconds(value: float | None) -> str:
    """Returns 0.8 s, 12 s, 9 min, 3 h or 2 days: one figure in the largest suitable unit."""
    if value is None:
        return NO_FIGURE
    if value < 10:
        return f"{value:.1f} s"
    for size, word in ((86_400, "days"), (3_600, "h"), (60, "min")):
        if value >= 2 * size:
            return f"{value / size:.0f} {word}"
    return f"{value:.0f} s"


def count(amount: int, one: str, many: str = "") -> str:
    """Returns 1 monitor, 3 monitors."""
    return f"{number(amount)} {one if amount == 1 else many or one + 's'}"


def at_least(amount: int, most: int) -> str:
    """Returns a count that stopped at ``most``."""
    return f"{number(most)}+" if amount >= most else number(amount)


def joined(parts: Sequence[str]) -> str:
    """Returns the parts in a row: a, b and c."""
    return " and ".join([", ".join(parts[:-1]), parts[-1]] if len(parts) > 1 else parts)


def sentence(text: str) -> str:
    """Returns the text with a capital first letter."""
    return text[:1].upper() + text[1:]


def moment(text: str) -> datetime:
    """Returns the time that the API writes as text."""
    return datetime.fromisoformat(text).astimezone(UTC)


def between(began: str, ended: str) -> float:
    """Returns the seconds from one time to the other."""
    return (moment(ended) - moment(began)).total_seconds()


def exact(text: str) -> str:
    """Returns 17 Nov 2026 00:00:00 UTC."""
    return f"{moment(text):%-d %b %Y %H:%M:%S} UTC"


def clock(text: str, now: datetime) -> str:
    """Returns the time of day, with the date if that is not today."""
    at = moment(text)
    return f"{at:%H:%M:%S}" if at.date() == now.date() else f"{at:%-d %b %H:%M}"


def day_name(date: str) -> str:
    """Returns Monday 16 November for 2026-11-16."""
    return f"{datetime.fromisoformat(date):%A %-d %B}"


def every(monitor: dict[str, object]) -> str:
    """Returns the interval, or the cron expression with its zone."""
    if monitor.get("every"):
        return f"every {monitor['every']}"
    zone = monitor.get("timezone") or "UTC"
    return f"{monitor['cron']} ({zone})"


def checked(check: dict[str, object]) -> str:
    """Returns the target of a check, in a line."""
    kind = str(check.get("kind", ""))
    match kind:
        case "http":
            return f"http {check.get('method', 'GET')} {check.get('url', '')}"
        case "tcp" | "tls":
            return f"{kind} {check.get('host', '')}:{check.get('port', 443)}"
        case "dns":
            return f"dns {check.get('type', 'A')} {check.get('name', '')}"
        case "outgoing":
            return f"your own checker, queue {check.get('queue', 'default')}"
        case _:
            return kind
