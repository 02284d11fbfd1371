"""Options of ``paceline verify``. Its code is imported only when it runs, so that other commands start fast."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from paceline.shells.cli.call import CliCall
from paceline.shells.cli.options import argument, option

SinceOption = Annotated[
    str | None,
    option("TIME", "Judge runs due since this time: 2026-11-18, 2026-11-18T09:00:00Z, or 24h for the last day."),
]
FileArgument = Annotated[Path | None, argument("FILE", "An export, or the file that RECEIPT belongs to.")]
ReceiptArgument = Annotated[Path | None, argument("RECEIPT", "The receipt of FILE.")]
BatchOption = Annotated[str | None, option("BATCH", "Judge only this batch.")]
DateOption = Annotated[str | None, option("DATE", "With --batch: judge only this day.")]
JobOption = Annotated[str | None, option("JOB", "Judge only this job.")]


def verify(
    call: CliCall,
    file: FileArgument = None,
    receipt: ReceiptArgument = None,
    *,
    since: SinceOption = None,
    batch: BatchOption = None,
    date: DateOption = None,
    job: JobOption = None,
) -> int:
    """Judge history from the ledger, promise by promise; exits with 1 if one was broken. Or check FILE against RECEIPT.

    It adds up, sorts and compares the rows itself. To judge a backup, give its file with --store; for an export, FILE.
    """
    from paceline.shells.cli.history.receipts import check_receipt
    from paceline.shells.cli.history.verify import judge_history

    if file is not None and receipt is not None:
        return check_receipt(call, file, receipt)
    return judge_history(call, file, since=since, batch=batch, date=date, job=job)
