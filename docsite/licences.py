"""Writes docs/licences.md: every locked package with its version and licence. ``python -m docsite.licences``"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "licences.md"
PRODUCT_EXTRAS = ("apprise", "aws", "pandas", "progress", "structlog")
"""Extras that users install; the others are for developers."""
PYTHONS = ("3.11", "3.12", "3.13", "3.14")
PLATFORMS = (
    {"sys_platform": "linux", "platform_system": "Linux", "os_name": "posix"},
    {"sys_platform": "win32", "platform_system": "Windows", "os_name": "nt"},
)
LICENCE_CHARS_MAX = 40
INTRO = """# Licences of the dependencies

Made by `make licences` from the lock and from what each package says of itself; a test compares. Paceline is under
[Apache-2.0](../LICENSE). Why each direct dependency is there: [decision 0002](decisions/0002-dependencies.md).

## In an installation

With every extra. None of these is under the GPL; pycurl may be taken under the MIT licence instead of the LGPL.

"""
TOOLS = """
## For tests, builds, benchmarks and the site

None of these is installed by `make up` or with the package alone, and nothing of them is part of a distribution.

"""


def page() -> str:
    versions = locked()
    product = {name for name in installed_with_paceline() if name in versions}
    tools = versions.keys() - product
    return INTRO + _table(product, versions) + TOOLS + _table(tools, versions)


def locked() -> dict[str, str]:
    """Returns name and version of each locked package; two versions if they depend on the Python."""
    found: dict[str, list[str]] = {}
    for line in (ROOT / "requirements" / "lock.txt").read_text().splitlines():
        name, version = line.partition(";")[0].strip().split("==")
        found.setdefault(canonicalize_name(name), []).append(version)
    return {name: " or ".join(versions) for name, versions in found.items()}


def installed_with_paceline() -> set[str]:
    """Returns the names of all packages that the product and its client need, with their extras for users."""
    waiting: list[Requirement] = []
    for project in (ROOT / "pyproject.toml", ROOT / "client" / "pyproject.toml"):
        read = tomllib.loads(project.read_text())["project"]
        extras = [read["optional-dependencies"].get(name, []) for name in PRODUCT_EXTRAS]
        waiting += map(Requirement, (*read["dependencies"], *(line for extra in extras for line in extra)))
    found: set[str] = set()
    while waiting:
        wanted = waiting.pop()
        name = canonicalize_name(wanted.name)
        if name in found:
            continue
        found.add(name)
        for one in map(Requirement, _requires(name)):
            if _wanted_somewhere(one, wanted.extras):
                waiting.append(one)
    return found


def _wanted_somewhere(one: Requirement, extras: set[str]) -> bool:
    """True if some Python on some platform needs it, so that the page is the same wherever it is made."""
    marker = one.marker
    return marker is None or any(
        marker.evaluate({"extra": extra, "python_version": python, "python_full_version": f"{python}.0"} | platform)
        for extra in extras or {""}
        for python in PYTHONS
        for platform in PLATFORMS
    )


def _requires(name: str) -> list[str]:
    try:
        return metadata.requires(name) or []
    except metadata.PackageNotFoundError:
        return []  # a package for another platform; it needs nothing outside the lock


def licence_of(name: str) -> str:
    """Returns the licence that the package declares: an expression, a short text, or its classifiers."""
    about = metadata.metadata(name)
    if "License-Expression" in about:
        return about["License-Expression"]
    text = about["License"].strip() if "License" in about else ""
    if text and "\n" not in text and len(text) <= LICENCE_CHARS_MAX and text not in ("UNKNOWN", "Dual License"):
        return text
    classified = [line.rpartition(" :: ")[2] for line in about.get_all("Classifier") or () if line.startswith("Lic")]
    assert classified, f"{name} does not say its licence"
    return ", ".join(sorted(classified))


def is_gpl(licence: str) -> bool:
    """True for the GPL and the AGPL, not for the LGPL."""
    return bool(re.search(r"(?<!L)GPL|(?<!Lesser )General Public License", licence))


def _table(names: Iterable[str], versions: dict[str, str]) -> str:
    rows = [f"| {name} | {versions[name]} | {licence_of(name)} |\n" for name in sorted(names)]
    return "| package | version | licence |\n|---|---|---|\n" + "".join(rows)


if __name__ == "__main__":
    PAGE.write_text(page())
