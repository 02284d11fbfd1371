"""Files that commands write appear once they are whole, and leave nothing behind if they do not."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from paceline.shells.cli.files import draft_of

PROGRAM = """
import time
from pathlib import Path
from paceline.shells.cli.files import draft_of

with draft_of(Path("copy.db")) as draft:
    draft.write_text("half")
    print("begun", flush=True)
    time.sleep(60)
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_draft_of_a_command_that_a_signal_ends_is_removed(tmp_path: Path, number: signal.Signals) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM], cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "begun\n"
        assert [file.suffix for file in tmp_path.iterdir()] == [".part"]
        process.send_signal(number)
        assert process.wait(30) != 0
    assert list(tmp_path.iterdir()) == []


def test_signals_do_afterwards_what_they_did_before(tmp_path: Path) -> None:
    before = [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP)]
    with draft_of(tmp_path / "whole.txt") as draft:
        draft.write_text("whole")
    assert (tmp_path / "whole.txt").read_text() == "whole"
    assert [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP)] == before


@pytest.mark.parametrize(("place", "words"), [("none/copy", "No such file or directory"), ("folder", "Is a directory")])
def test_error_of_a_draft_names_the_file_that_was_asked_for(tmp_path: Path, place: str, words: str) -> None:
    (tmp_path / "folder").mkdir()
    with pytest.raises(OSError, match=words) as raised, draft_of(tmp_path / place) as draft:
        draft.write_text("whole")
    assert raised.value.filename == str(tmp_path / place)


def test_full_disk_is_told_with_the_file_that_was_asked_for(tmp_path: Path) -> None:
    with (
        pytest.raises(OSError, match="No space left") as raised,
        draft_of(tmp_path / "copy"),
        Path("/dev/full").open("wb", buffering=0) as full,
    ):
        full.write(b"x")
    assert raised.value.filename == str(tmp_path / "copy")
