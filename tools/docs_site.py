"""What MkDocs needs beside docs/: README.md as the home page, and a page for each file of the
repository that a page links to, so that a link works on the site as it does in the repository.

`mkdocs.yml` names this file as a hook.
"""

from __future__ import annotations

import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files, InclusionLevel
from mkdocs.structure.pages import Page
from mkdocs.utils import get_relative_url

ROOT = Path(__file__).resolve().parent.parent
BLOCK_OR_LINK = re.compile(
    r"^```(?P<language>\w+) ?(?P<file>\S*)\n(?P<text>.*?^```$)|\]\((?P<link>[^)\s#]+)(?=[)#])",
    re.M | re.S,
)


def on_files(files: Files, config: MkDocsConfig) -> None:
    """Add the pages that are not in docs/."""
    files.append(File.generated(config, "index.md", abs_src_path=str(ROOT / "README.md")))
    pages = list(files.documentation_pages())
    for page in pages:
        for match in BLOCK_OR_LINK.finditer(page.content_string):
            path = linked(page, match)
            if path is not None and files.get_file_from_path(uri_of(path)) is None:
                added = outside(path, config)
                files.append(added)
                pages.append(added)


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """A page with its links as the site has them, and above a block the file that it gives."""

    def changed(match: re.Match[str]) -> str:
        if match["file"]:
            return f'```{match["language"]} title="{match["file"]}"\n{match["text"]}'
        path = linked(page.file, match)
        if path is None:
            return match[0]
        return f"]({get_relative_url(uri_of(path), page.file.src_uri)}"

    return BLOCK_OR_LINK.sub(changed, markdown)


def linked(page: File, match: re.Match[str]) -> Path | None:
    """The file of the repository that a link of a page leads to, if there is one."""
    if not match["link"]:
        return None
    path = (source_of(page).parent / match["link"]).resolve()
    return path if path.is_file() and path.is_relative_to(ROOT) else None


def source_of(page: File) -> Path:
    """The file of the repository that a page shows."""
    if page.src_uri == "index.md":
        return ROOT / "README.md"
    inside = page.src_uri.removeprefix("repository/")
    return ROOT / inside if inside != page.src_uri else ROOT / "docs" / inside


def uri_of(path: Path) -> str:
    """Where the site has a file of the repository."""
    inside = path.relative_to(ROOT)
    if inside == Path("README.md"):
        return "index.md"
    if inside.is_relative_to("docs"):
        return inside.relative_to("docs").as_posix()
    return f"repository/{inside.as_posix()}" + ("" if path.suffix == ".md" else ".md")


def outside(path: Path, config: MkDocsConfig) -> File:
    """A page for a file that is not in docs/, outside of the navigation."""
    text = path.read_text()
    if path.suffix != ".md":
        text = f"# {path.name}\n\n````{path.suffix[1:] or 'text'}\n{text}````\n"
    return File.generated(config, uri_of(path), content=text, inclusion=InclusionLevel.NOT_IN_NAV)
