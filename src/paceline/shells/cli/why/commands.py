"""Options of ``paceline why``. Its code is imported only when it runs, so that other commands start fast."""

from __future__ import annotations

from typing import Annotated

from paceline.errors import InvalidInput
from paceline.shells.cli.call import CliCall
from paceline.shells.cli.options import UserOption, argument, option

RunArgument = Annotated[
    str | None,
    argument(
        "RUN",
        (
            "The run's id: user/monitor#generation@counter, batch/record@date, job/index; or user/refused#number for a"
            " refused job."
        ),
    ),
]
MonitorOption = Annotated[str | None, option("ID", "Instead of a run: why this monitor does not fire.", "--monitor")]
RecordOption = Annotated[
    str | None, option("BATCH/RECORD", "Instead of a run: why this record did not run today.", "--record")
]
JobOption = Annotated[str | None, option("JOB", "Instead of a run: why this job is not done.", "--job")]


def why(
    call: CliCall,
    run: RunArgument = None,
    *,
    monitor: MonitorOption = None,
    user: UserOption = None,
    record: RecordOption = None,
    job: JobOption = None,
) -> None:
    """Explain why a run waits or how it went: each reason, how long it lasts, who can change it, and when it starts."""
    given = [one for one in (run, monitor, record, job) if one is not None]
    if len(given) != 1:
        raise InvalidInput("Give a run, or one of --monitor, --record and --job.")
    from paceline.shells.cli.why import answers

    if monitor is not None:
        view = answers.of_monitor(call, monitor, user)
    elif record is not None:
        view = answers.of_record(call, record)
    elif job is not None:
        view = answers.of_job(call, job)
    else:
        view = answers.of_run(call, given[0])
    answers.show(call, view)
