"""The docs site builds from docs/ without a warning, is whole, and loads nothing from elsewhere."""

import inspect
import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urldefrag

import pytest

import beamsearch
from tests import ROOT

for module in ("material", "mkdocstrings_handlers.python"):
    pytest.importorskip(module, reason="needs pip install 'beamsearch[docs]'")

DOCS = ROOT / "docs"
NOWHERE = "http://127.0.0.1:9"
"""A proxy that nobody is: a build that asks the network fails."""


class Html(HTMLParser):
    """A page: what it loads, where its links and its navigation lead, its fragments, its text."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.loads: list[str] = []
        self.links: list[str] = []
        self.navigation: set[str] = set()
        self.fragments = {""}
        self.text = ""
        self.feed(path.read_text())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        if tag == "link":
            self.loads.append(given["href"])
        self.loads += [given[name] for name in ("src", "srcset", "data") if name in given]
        if tag == "a" and "href" in given:
            self.links.append(given["href"])
            if "md-nav__link" in given.get("class", ""):
                self.navigation.add(urldefrag(given["href"]).url)
        self.fragments |= {given[name] for name in ("id", "name") if name in given}

    def handle_data(self, data: str) -> None:
        self.text += data


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    """The folder of the built site."""
    folder = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", folder],
        cwd=ROOT,
        env={**os.environ, "http_proxy": NOWHERE, "https_proxy": NOWHERE},
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


@pytest.fixture(scope="module")
def pages(site) -> dict[Path, Html]:
    """Every page of it."""
    return {path: Html(path) for path in site.rglob("*.html")}


def test_every_page_of_docs_is_in_the_navigation(site, pages):
    written = {
        path.relative_to(DOCS).with_suffix(".html").as_posix() for path in DOCS.rglob("*.md")
    }
    expected = {"index.html", *(path.replace("README", "index") for path in written)}
    assert len(expected) > 15
    assert pages[site / "index.html"].navigation - {""} | {"index.html"} == expected


def test_every_link_leads_to_a_page_or_file_of_the_site(site, pages):
    seen = 0
    for path, page in pages.items():
        for link in page.links:
            url, fragment = map(unquote, urldefrag(link))
            if re.match(r"\w+:", url):
                continue
            base = site if url.startswith("/") else path.parent
            target = (base / url.lstrip("/")).resolve() if url else path
            target = target / "index.html" if target.is_dir() else target
            assert target.is_file(), f"{path.name} links to {link}"
            if target.suffix == ".html" and not fragment.startswith("__"):
                assert fragment in pages[target].fragments, f"{path.name} links to {link}"
            seen += 1
    assert seen > 1000


def test_nothing_is_loaded_from_elsewhere(site, pages):
    elsewhere = re.compile(r"(\w+:)?//")
    for path, page in pages.items():
        assert page.loads, path
        assert not [load for load in page.loads if elsewhere.match(load)], path
    for sheet in site.rglob("*.css"):
        loads = re.findall(r"(?:url\(|@import )[\"']?([^\"')]+)", sheet.read_text())
        assert not [load for load in loads if elsewhere.match(load)], sheet


def test_readme_is_the_home_and_a_file_beside_docs_is_a_page(site, pages):
    start = (ROOT / "README.md").read_text().split("\n\n")[1]
    assert squeezed(start) in squeezed(pages[site / "index.html"].text)
    assert "repository/LICENSE.html" in pages[site / "index.html"].links
    licence = squeezed((ROOT / "LICENSE").read_text())
    assert licence in squeezed(pages[site / "repository" / "LICENSE.html"].text)


@pytest.mark.parametrize("name", beamsearch.__all__)
def test_the_api_page_has_the_docstring_of(name, site, pages):
    page = pages[site / "api.html"]
    assert f"beamsearch.{name}" in page.fragments
    assert squeezed(inspect.getdoc(getattr(beamsearch, name))) in squeezed(page.text)


def test_the_file_that_a_block_gives_stands_above_it(site):
    page = (site / "extending.html").read_text()
    assert '<span class="filename">lab/kernel_lab/finding.py</span>' in page


def squeezed(text: str) -> str:
    """A text without what Markdown takes away: spaces and marks."""
    return re.sub(r"[\s`]", "", text)
