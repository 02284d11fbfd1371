"""Builds what `make functions` builds, for the emulator's Python: packages once per lock, our own code every time."""

from __future__ import annotations

import io
import runpy
import shutil
import subprocess
import sys
import zipfile
from functools import cache
from hashlib import sha256
from pathlib import Path

ROOT = Path(__file__).parents[3]
SCRIPT = ROOT / "scripts" / "build-functions"
PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"


@cache
def package() -> Path:
    """The folder."""
    parts = [file.read_bytes() for file in (SCRIPT, ROOT / "requirements" / "lock.txt", ROOT / "pyproject.toml")]
    name = sha256(b"\0".join([PYTHON.encode(), *parts])).hexdigest()[:12]
    folder = ROOT / "build" / "functions" / name
    if not folder.exists():
        subprocess.run([sys.executable, str(SCRIPT), f"--python={PYTHON}", f"--into={folder}"], check=True, timeout=280)
    else:
        shutil.rmtree(folder / "paceline")
        caches = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / "src" / "paceline", folder / "paceline", ignore=caches)
        script = runpy.run_path(str(SCRIPT))
        for left_out in script["OURS_LEFT_OUT"]:
            shutil.rmtree(folder / "paceline" / left_out)
        script["compile_all"](folder / "paceline", sys.executable, at="/var/task/paceline")
    return folder


def zipped(folder: Path) -> bytes:
    """Without compression: it goes no further than this machine."""
    written = io.BytesIO()
    with zipfile.ZipFile(written, "w") as archive:
        for file in sorted(folder.rglob("*")):
            if file.is_file():
                archive.write(file, file.relative_to(folder))
    return written.getvalue()
