"""``paceline aws``: the tables and queues of the engine on DynamoDB and SQS."""

from __future__ import annotations

import msgspec
import typer

from paceline.errors import InvalidInput
from paceline.shells.cli import output
from paceline.shells.cli.call import CliCall, command

app = typer.Typer(name="aws", help="Tables and queues of the engine on DynamoDB and SQS.")


@command(app, "init")
def init(call: CliCall) -> int:
    """Create the tables and queues that are missing. Running it again changes nothing."""
    call.need_store()
    from paceline.config import aws_prefix
    from paceline.wiring import make_aws

    settings = call.settings()
    prefix = aws_prefix(settings.store)
    if prefix is None:
        raise InvalidInput(
            f"The store is {settings.store}, which needs no tables. Choose one on AWS: --store 'aws://?prefix=paceline',"
            " or PACELINE_STORE."
        )
    made = make_aws(prefix, settings)
    lines = [
        f"{word}: {name}"
        for word, names in (("created", made.created), ("there already", made.existing))
        for name in names
    ]
    notes = [output.TextNote(f"differs: {difference}") for difference in made.differences]
    output.emit(call, {"prefix": prefix, **msgspec.to_builtins(made._asdict())}, *lines, *notes)
    return output.EXIT_FAILED if made.differences else output.EXIT_OK
