"""Builds the site: ``python -m docsite [--into build/site]``. Nothing is fetched; a broken link fails the build."""

from __future__ import annotations

import argparse
import shutil
import tempfile
from pathlib import Path

from mkdocs.commands.build import build
from mkdocs.config import load_config

from docsite.stage import ROOT, stage

HERE = Path(__file__).resolve().parent


def build_site(into: Path) -> None:
    """Stages the pages in a folder of its own and builds them into ``into``, which is replaced."""
    with tempfile.TemporaryDirectory() as folder:
        pages = Path(folder) / "pages"
        nav = stage(pages)
        shutil.copyfile(HERE / "site.css", pages / "site.css")
        config = load_config(
            str(HERE / "mkdocs.yml"),
            docs_dir=str(pages),
            site_dir=str(into),
            nav=nav,
            strict=True,
            use_directory_urls=False,
        )
        build(config)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--into", type=Path, default=ROOT / "build" / "site", help="the folder to make")
    into = parser.parse_args().into.resolve()
    build_site(into)
    print(f"{into}/index.html")  # noqa: T201  it says what it made


if __name__ == "__main__":
    main()
