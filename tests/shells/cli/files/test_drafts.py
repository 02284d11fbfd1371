"""Files that commands write appear once they are whole, and leave nothing behind if they do not."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from paceline.errors import InvalidInput
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


def test_error_of_a_draft_names_the_file_that_was_asked_for(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="No such file") as raised, draft_of(tmp_path / "none" / "copy") as draft:
        draft.write_text("whole")
    assert raised.value.filename == str(tmp_path / "none" / "copy")


@pytest.mark.parametrize("place", ["folder", "pipe", "link to pipe"])
def test_only_an_ordinary_file_is_replaced_by_a_draft(tmp_path: Path, place: str) -> None:
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link to pipe").symlink_to("pipe")
    with pytest.raises(InvalidInput, match="not an ordinary file"), draft_of(tmp_path / place):
        pass
    assert (tmp_path / "pipe").is_fifo()
    assert (tmp_path / "folder").is_dir()
    assert sorted(file.name for file in tmp_path.iterdir()) == ["folder", "link to pipe", "pipe"]


def test_link_stays_and_the_file_that_it_leads_to_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept" / "copy").write_text("old")
    (tmp_path / "link").symlink_to("kept/copy")
    with draft_of(tmp_path / "link") as draft:
        draft.write_text("new")
    assert (tmp_path / "link").is_symlink()
    assert [file.read_text() for file in (tmp_path / "kept").iterdir()] == ["new"]


def test_full_disk_is_told_with_the_file_that_was_asked_for(tmp_path: Path) -> None:
    with (
        pytest.raises(OSError, match="No space left") as raised,
        draft_of(tmp_path / "copy"),
        Path("/dev/full").open("wb", buffering=0) as full,
    ):
        full.write(b"x")
    assert raised.value.filename == str(tmp_path / "copy")
