"""The documentation site: built offline from the files of the repository, with links that all lead somewhere."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote, urlsplit

import pytest

from docsite.diagrams import is_diagram, svg, words_of
from docsite.operations import operation_pages
from docsite.stage import DOCS, ROOT, glossary, navigation, place_of, sources
from paceline.errors import PacelineError
from paceline.shells.api.http.problems import CODES
from paceline.shells.api.openapi.document import openapi_document
from paceline.shells.api.routes import ROUTES
from paceline.shells.cli import remote
from paceline.shells.ripe_api.envelope import Conflict

NO_NETWORK = (
    "import socket\ndef no(*a, **k): raise AssertionError('the build asks the network')\nsocket.getaddrinfo = no\n"
)
BUILD_TIMEOUT_S = 240


class Html(HTMLParser):
    """Collects the links, the anchors and the things that a browser would load of one page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links, self.anchors, self.loads = list[str](), set[str](), list[str]()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        named = {name: value or "" for name, value in attrs}
        self.anchors |= {named[name] for name in ("id", "name") if name in named}
        if tag == "a" and "href" in named:
            self.links.append(named["href"])
        elif "src" in named:
            self.loads.append(named["src"])
        elif tag == "link" and named.get("rel") != "canonical":
            self.loads.append(named["href"])


class Site(NamedTuple):
    folder: Path
    pages: dict[Path, Html]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Site:
    folder = tmp_path_factory.mktemp("site") / "made"
    guard = folder.parent / "sitecustomize.py"
    guard.write_text(NO_NETWORK)
    env = os.environ | {"PYTHONPATH": f"{guard.parent}{os.pathsep}{ROOT}"}
    done = subprocess.run(
        [sys.executable, "-m", "docsite", "--into", str(folder)],
        cwd=ROOT,
        env=env,
        capture_output=True,
        text=True,
        check=False,
        timeout=BUILD_TIMEOUT_S,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return Site(folder, {page: Html(page.read_text()) for page in folder.rglob("*.html")})


def test_site_has_every_page_of_the_repository(site: Site) -> None:
    wanted = {(site.folder / place_of(source)).with_suffix(".html") for source in sources()}
    as_index = {page.with_name("index.html") if page.stem == "README" else page for page in wanted}
    assert as_index - site.pages.keys() == set()


def test_every_link_and_anchor_of_the_site_leads_somewhere(site: Site) -> None:
    broken = []
    for page, html in site.pages.items():
        if page.name == "404.html":  # its links begin at the root of a host
            continue
        for link in html.links + html.loads:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = (page.parent / unquote(parts.path)).resolve() if parts.path else page
            target = target / "index.html" if target.is_dir() else target
            found = target.exists() and (
                not parts.fragment or target not in site.pages or unquote(parts.fragment) in site.pages[target].anchors
            )
            if not found and not parts.fragment.startswith("__"):
                broken.append(f"{page.relative_to(site.folder)}: {link}")
    assert broken == []


def test_site_loads_nothing_from_elsewhere(site: Site) -> None:
    loads = {load for html in site.pages.values() for load in html.loads}
    assert {load for load in loads if urlsplit(load).netloc} == set()
    styles = "".join(file.read_text() for file in site.folder.rglob("*.css"))
    assert re.findall(r"@import|url\(['\"]?(?:https?:)?//[^)]*", styles) == []
    policy = "Content-Security-Policy\" content=\"default-src 'self';"
    assert [page for page in site.pages if policy not in page.read_text()] == []


def test_site_shows_each_diagram_of_the_concepts_as_svg(site: Site) -> None:
    blocks = re.findall(r"^```text\n(.*?)^```$", (DOCS / "concepts.md").read_text(), re.MULTILINE | re.DOTALL)
    wanted = [block for block in blocks if is_diagram(block)]
    assert len(wanted) >= 5
    assert (site.folder / "concepts.html").read_text().count('<svg class="diagram"') == len(wanted)


def test_navigation_has_every_page_that_the_index_lists() -> None:
    def places(nav: object) -> set[str]:
        if isinstance(nav, str):
            return {nav}
        return set().union(*(places(one) for one in (nav if isinstance(nav, list) else nav.values())))  # type: ignore[attr-defined]

    assert {place_of(source) for source in sources()} <= places(navigation([]))


def test_diagram_keeps_every_word_and_draws_every_line() -> None:
    text = "submit ──► queued ──► done | failed\n   ▲         │\n   └─────────┘  again <later>\n"
    drawn = svg(text, title="a & b")
    assert [words.text for words in words_of(text.split("\n"))] == [
        "submit",
        "queued",
        "done | failed",
        "again <later>",
    ]
    assert [words.touched for words in words_of(text.split("\n"))] == [True, True, True, False]
    assert drawn.count("<polygon") == 3
    assert "again &lt;later&gt;" in drawn
    assert "<title>a &amp; b</title>" in drawn
    assert not is_diagram("a table\nof words │ and bars\n")


def test_every_operation_is_on_a_page_with_its_example() -> None:
    pages = "\n".join(operation_pages().values())
    document = openapi_document(ROUTES)
    operations = [one for path in document["paths"].values() for one in path.values()]
    assert len(operations) > 80
    assert [one["operationId"] for one in operations if f"{{ #{one['operationId']} }}" not in pages] == []
    assert [name for name in document["components"]["schemas"] if f"{{ #schema-{name} }}" not in pages] == []
    assert '"url": "https://example.org/"' in pages


def test_glossary_has_the_words_of_the_concepts() -> None:
    words = re.findall(r"^\| \*\*([\w -]+)\*\*", glossary(), flags=re.MULTILINE)
    assert len(words) > 50


def all_codes() -> set[str]:
    """The codes of the error tree, of the API alone, and of the command line over REST. RIPE's API has its own."""

    def below(kind: type[PacelineError]) -> set[str]:
        return {kind.code}.union(*map(below, kind.__subclasses__()))

    spoken = set(re.findall(r'Problem\([^)]*"([a-z_]+)"\)', Path(remote.__file__).read_text()))
    assert spoken >= {"unreachable", "untrusted"}
    return (below(PacelineError) | CODES.keys() | spoken) - {Conflict.code}


def test_troubleshooting_has_a_section_for_every_error_code_and_no_other() -> None:
    text = (DOCS / "troubleshooting.md").read_text()
    sections = re.findall(r"^### `(\w+)`\n\n(.+)", text, flags=re.MULTILINE)
    assert len(sections) == len(dict(sections))
    assert dict(sections).keys() == all_codes()
