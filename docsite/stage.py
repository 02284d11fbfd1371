"""Copies the Markdown files of the repository to where mkdocs reads them, with links that work there."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

from docsite.diagrams import is_diagram, svg
from docsite.operations import operation_pages

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
TOP = {
    "README.md": "index.md",
    "ARCHITECTURE.md": "architecture.md",
    "CONTRIBUTING.md": "contributing.md",
    "STYLE.md": "style.md",
    "CHANGELOG.md": "changelog.md",
    "SECURITY.md": "security.md",
    "CODE_OF_CONDUCT.md": "code-of-conduct.md",
    "deploy/aws/README.md": "deploy/aws.md",
    "docs/README.md": "contents.md",
}
"""Pages whose place on the site is not below ``docs``."""
FILES = "files"
"""Folder of files that pages link to and that are not pages, such as the template for AWS."""
FENCE = re.compile(r"^(`{3,})(.*?)\n(.*?)^\1$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"(\]\()([^)\s#]+)(#[^)\s]*)?(\))")
LIST_AT_ONCE = re.compile(r"^(?![ \t]*(?:[-*>#|]|\d+\.) )(\S.*)\n([-*] |1\. )", re.MULTILINE)
"""A list right below a line of text: GitHub shows a list, but mkdocs needs an empty line before it."""

Nav = list[dict[str, "str | Nav"]]


def stage(into: Path) -> Nav:
    """Writes every page and picture below ``into``. Returns the navigation in the order of docs/README.md."""
    shutil.copytree(DOCS, into, ignore=shutil.ignore_patterns("*.md"))
    for source in sources():
        _write(into / place_of(source), page(source, into))
    _write(into / "glossary.md", glossary())
    operations = operation_pages()
    for name, text in operations.items():
        _write(into / name, text)
    return navigation(list(operations))


def sources() -> list[Path]:
    return [*(ROOT / name for name in TOP), *sorted(p for p in DOCS.rglob("*.md") if p != DOCS / "README.md")]


def place_of(source: Path) -> str:
    """Returns the place of a page on the site."""
    name = source.relative_to(ROOT).as_posix()
    return TOP.get(name) or source.relative_to(DOCS).as_posix()


def page(source: Path, into: Path) -> str:
    """Returns the text of a page: links lead to places on the site, diagrams are SVG."""
    parts, end = list[str](), 0
    text = source.read_text()
    title = text.partition("\n")[0].lstrip("# ")
    for fence in FENCE.finditer(text):
        parts += [_with_links(text[end : fence.start()], source, into), _block(fence, title)]
        end = fence.end()
    return "".join([*parts, _with_links(text[end:], source, into)])


def _block(fence: re.Match[str], title: str) -> str:
    ticks, info, body = fence[1], fence[2], fence[3]
    if info == "text" and is_diagram(body):
        return f'<div class="diagram">{svg(body, title=f"Diagram: {title}")}</div>\n'
    # Words after the language are for tests, such as the name of a file, which is shown to readers.
    language, _, rest = info.partition(" ")
    named = f' title="{rest.rpartition("file=")[2]}"' if "file=" in rest else ""
    return f"{ticks}{language}{named}\n{body}{ticks}"


def _with_links(text: str, source: Path, into: Path) -> str:
    def moved(link: re.Match[str]) -> str:
        if re.match(r"[a-z]+:", link[2]):
            return link[0]
        target = (source.parent / link[2]).resolve()
        return f"{link[1]}{_link(target, place_of(source), into)}{link[3] or ''}{link[4]}"

    return LIST_AT_ONCE.sub(r"\1\n\n\2", LINK.sub(moved, text))


def _link(target: Path, page_place: str, into: Path) -> str:
    """Returns the link from a page to a page, a picture or another file; pictures and files are copied."""
    if target.suffix == ".md" and target in sources():
        place = place_of(target)
    elif DOCS in target.parents:
        place = target.relative_to(DOCS).as_posix()
    else:
        name = target.relative_to(ROOT).as_posix()
        # Without a suffix a browser would not know how to show it.
        place = f"{FILES}/{name}{'' if target.suffix else '.txt'}"
        (into / place).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(target, into / place)
    return os.path.relpath(place, Path(page_place).parent)


def glossary() -> str:
    """Returns the glossary of the concepts as its own page."""
    text = (DOCS / "concepts.md").read_text().partition("\n## Glossary\n")[2].partition("\n## ")[0]
    assert text, "docs/concepts.md has no glossary"
    # Its links to sections of the concepts must lead to that page.
    return "# Glossary\n" + re.sub(r"\]\(#", "](concepts.md#", text)


def navigation(operations: list[str]) -> Nav:
    """Returns the sections of docs/README.md with the links of their lists, and the generated pages."""
    found: Nav = [{"Paceline": "index.md"}]
    index = (DOCS / "README.md").read_text()
    for section in re.split(r"^(?=\*\*)", index, flags=re.MULTILINE)[1:]:
        name = section.partition("**")[2].partition("**")[0]
        pages: Nav = []
        for line in section.splitlines():
            if line.startswith("- "):
                links = re.findall(r"\[([^]]+)\]\(([^)#\s]+)\)", line)
                pages += [{title: place_of((DOCS / path).resolve())} for title, path in links]
        if name.startswith("Reference"):
            pages += [
                {"Glossary": "glossary.md"},
                {"Every operation, with examples": [{_title(n): n} for n in operations]},
            ]
        found.append({name: pages})
    found[-1] = _with_project_pages(found[-1])
    return found


def _title(name: str) -> str:
    return Path(name).stem.replace("-", " ").capitalize()


def _with_project_pages(section: dict[str, str | Nav]) -> dict[str, str | Nav]:
    """Returns the last section with the pages that a repository shows beside its README."""
    ((name, pages),) = section.items()
    assert isinstance(pages, list)
    more: Nav = [
        {"Changelog": "changelog.md"},
        {"Security": "security.md"},
        {"Code of conduct": "code-of-conduct.md"},
        {"The template for AWS": "deploy/aws.md"},
        {"All pages": "contents.md"},
    ]
    records = sorted((DOCS / "decisions").glob("0*.md"))
    titles: Nav = [{p.read_text().partition("\n")[0].lstrip("# "): place_of(p)} for p in records]
    kept: Nav = [one for one in pages if "Decision records" not in one]
    return {name: [*kept, {"Decision records": [{"All records": "decisions/README.md"}, *titles]}, *more]}


def _write(file: Path, text: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
