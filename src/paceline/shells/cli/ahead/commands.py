"""Options of ``paceline ahead``. Its code is imported only when it runs, so that other commands start fast."""

from __future__ import annotations

import os
from typing import Annotated

from paceline.core.ahead.hours import HOURS_DEFAULT, HOURS_MAX
from paceline.shells.cli.call import CliCall
from paceline.shells.cli.options import option

HoursOption = Annotated[int, option("N", "How many hours to show.", "--hours", min=1, max=HOURS_MAX)]
OfUserOption = Annotated[
    str | None, option("USER", "Only this user's. [default: $PACELINE_USER, or all users]", "--user")
]


def show_ahead(call: CliCall, *, hours: HoursOption = HOURS_DEFAULT, user: OfUserOption = None) -> None:
    """Show the next hours: firings, calls and sends against capacity, and the three worst minutes. Times are UTC."""
    from paceline.shells.cli.ahead.table import show

    show(call, hours=hours, user=user or os.environ.get("PACELINE_USER"))
