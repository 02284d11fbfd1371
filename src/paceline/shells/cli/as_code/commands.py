"""``paceline apply``: makes definitions as files declare them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from paceline.shells.cli.call import CliCall
from paceline.shells.cli.options import UserOption, flag, option

FilesOption = Annotated[list[Path], option("FILE", "YAML file; - reads stdin. May be repeated.", "-f", "--file")]
DryRunOption = Annotated[bool, flag("--dry-run", "Change nothing; exit code 5 if there are differences, else 0.")]
PruneOption = Annotated[
    bool,
    flag("--prune", "Also remove definitions that the files leave out, only of kinds and users that the files name."),
]
YesOption = Annotated[bool, flag("--yes", "Remove without asking.")]


def apply(
    call: CliCall,
    *,
    file: FilesOption,
    dry_run: DryRunOption = False,
    prune: PruneOption = False,
    yes: YesOption = False,
    user: UserOption = None,
) -> int:
    """Make monitors, channels, providers and batches match YAML files, and print the differences."""
    from paceline.shells.cli.as_code.apply import Terms
    from paceline.shells.cli.as_code.apply import apply as apply_files

    return apply_files(call, Terms(file, dry_run, prune, yes, user))
