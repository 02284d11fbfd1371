"""Runs benchmarks of this tree and of another revision in turns, in one run, and compares their rates row by row.

Both run with the same Python and the same libraries, each with its own code and its own benchmarks; a row that only one
of them has is left out. The first of the two changes from round to round. A row that has a floor is compared by its
ratio to the floor, which was measured beside it; one without, by its rate, or by its cost.
"""

from __future__ import annotations

import io
import json
import os
import statistics
import subprocess
import sys
import tarfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.harness import HERE, Result, work_folder

Row = tuple[str, int]
"""Subject and size."""
MORE_IS_BETTER = ("ratio_to_floor", "per_s")
LESS_IS_BETTER = ("requests", "page ms")
SOURCES = ("src", "client/src", ".")


def compare(
    revision: str, names: Sequence[str], *, rounds: int, full: bool, say: Callable[[str], None]
) -> Iterator[tuple[str, list[Result]]]:
    """Yield each benchmark with its rows: the median over the rounds of this tree's figure over the other's."""
    with work_folder() as folder:
        other = _unpack(revision, folder / "other")
        for name in names:
            yield name, _compare(name, HERE.parent, other, rounds=rounds, full=full, say=say)


def _compare(
    name: str, here: Path, other: Path, *, rounds: int, full: bool, say: Callable[[str], None]
) -> list[Result]:
    trees = {"here": here, "there": other}
    measured: dict[str, list[dict[Row, Result]]] = {"here": [], "there": []}
    for number in range(rounds):
        for which in ("here", "there") if number % 2 else ("there", "here"):
            say(f"{name}: round {number + 1} of {rounds}, {which}")
            measured[which].append(_measure(name, trees[which], full=full))
    rows = [row for row in measured["here"][0] if all(row in one for some in measured.values() for one in some)]
    return [result for row in rows if (result := _row(row, measured)) is not None]


def _row(row: Row, measured: Mapping[str, Sequence[Mapping[Row, Result]]]) -> Result | None:
    pairs = [(here[row], there[row]) for here, there in zip(measured["here"], measured["there"], strict=True)]
    by = next((key for key in MORE_IS_BETTER + LESS_IS_BETTER if all(key in one for pair in pairs for one in pair)), "")
    if not by or any(not one[by] for pair in pairs for one in pair):
        return None
    quotients = [here[by] / there[by] for here, there in pairs]
    return {
        "subject": row[0],
        "size": row[1],
        "by": by,
        "here": round(statistics.median(here[by] for here, _ in pairs), 3),
        "there": round(statistics.median(there[by] for _, there in pairs), 3),
        "here_over_there": round(statistics.median(quotients), 3),
        "lowest": round(min(quotients), 3),
        "highest": round(max(quotients), 3),
    }


def _measure(name: str, tree: Path, *, full: bool) -> dict[Row, Result]:
    """Run one benchmark of a tree in a process of its own, with the code of that tree."""
    paths = os.pathsep.join(str(tree / source) for source in SOURCES)
    command = [sys.executable, "-m", "bench", name, "--json", *(["--full"] if full else [])]
    environment = os.environ | {"PYTHONPATH": paths}
    done = subprocess.run(command, cwd=tree, env=environment, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{name} of {tree} failed; its output above says why.")
    report: dict[str, Any] = json.loads(done.stdout)
    return {(row["subject"], row.get("size", 0)): row for row in report["results"]}


def _unpack(revision: str, folder: Path) -> Path:
    """Write the files of a revision into the folder."""
    command = ["git", "archive", "--format=tar", revision]
    packed = subprocess.run(command, cwd=HERE.parent, stdout=subprocess.PIPE, check=False)
    if packed.returncode:
        raise SystemExit(f"--beside {revision}: name a commit, a branch or a tag of this repository.")
    with tarfile.open(fileobj=io.BytesIO(packed.stdout)) as files:
        files.extractall(folder, filter="data")
    return folder
