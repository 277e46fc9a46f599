"""Pages in headless Chromium: silent, without a request, and usable with a mouse and with keys."""

import re
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from beamsearch.records.packed import opened_run
from beamsearch.report.page import write_comparison, write_report
from beamsearch.report.run_data import RunData
from tests.report.made import PLAYBOOK, WITH_MODEL, hostile, multiplied

playwright = pytest.importorskip(
    "playwright.sync_api", reason="needs playwright: pip install -e '.[browser]'"
)
axe = pytest.importorskip(
    "axe_playwright_python.sync_playwright", reason="needs axe: pip install -e '.[browser]'"
)
CHROMIUM = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)
pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium on the PATH"),
]
QUIET = (
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync"),
    *("--disable-background-networking", "--disable-component-update"),
)


@pytest.fixture(scope="module")
def browser() -> Iterator[object]:
    with playwright.sync_playwright() as started:
        browser = started.chromium.launch(executable_path=CHROMIUM, args=list(QUIET))
        yield browser
        browser.close()


@pytest.fixture
def opened(browser):
    """Opens a file; at the end nothing was logged, and nothing but the file was asked for."""
    said, asked, contexts = [], [], []

    def open_page(path: Path, **context):
        contexts.append(browser.new_context(**context))
        page = contexts[-1].new_page()
        page.on("console", lambda message: said.append(message.text))
        page.on("pageerror", lambda error: said.append(str(error)))
        page.on("request", lambda request: asked.append(request.url.partition("#")[0]))
        page.goto(path.as_uri())
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert said == []
    assert all(url.startswith("file:") for url in asked) and len(set(asked)) <= 1, asked


@pytest.fixture(scope="module")
def recorded(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("page") / "run.html"
    write_report(RunData(opened_run(WITH_MODEL)), path)
    return path


def test_the_tree_answers_to_keys(opened, recorded):
    page = opened(recorded)
    page.focus("[role=treeitem][tabindex='0']")
    page.keyboard.press("ArrowDown")
    first = page.evaluate("document.activeElement.dataset.card")
    assert first == "r1-w0-v0"
    page.keyboard.press("Enter")
    page.wait_for_selector("#card[open] h2")
    assert page.inner_text("#card h2") == first
    page.keyboard.press("Escape")
    assert not page.is_visible("#card")
    assert page.evaluate("document.activeElement.dataset.card") == first
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("ArrowLeft")
    assert page.evaluate("document.activeElement.getAttribute('aria-expanded')") == "false"
    assert not page.is_visible("[data-card=r1-w0-v0]")
    page.keyboard.press("ArrowRight")
    assert page.is_visible("[data-card=r1-w0-v0]")


def test_a_click_shows_code_difference_prompt_and_reply(opened, recorded):
    page = opened(recorded)
    page.click("[data-card=r3-w3-v1] > .node b")
    page.wait_for_selector("#card[open] h2")
    for title, sign in (
        ("source", "kernel_function"),
        ("difference", "@@"),
        ("variants: prompt", "kernel_function"),
        ("reflection: reply", "summary"),
    ):
        part = page.locator("#card details", has=page.locator(f"summary:has-text('{title}')")).first
        part.locator("summary").click()
        part.locator("pre").wait_for()
        assert sign in part.locator("pre").inner_text()
    for place in (0, 400):  # its name stays in sight
        page.evaluate(f"document.querySelector('#card').scrollTop = {place}")
        assert page.evaluate(
            "(() => { const title = document.querySelector('#card h2');"
            " const box = title.getBoundingClientRect(), y = box.top + box.height / 2;"
            " return document.elementFromPoint(box.left + 5, y) === title; })()"
        ), place
    page.click("#card .close")
    assert not page.is_visible("#card")


def test_tables_sort_by_clicks_and_keys(opened, recorded):
    page = opened(recorded)
    head = page.locator("#all th button", has_text="over input")
    head.focus()
    page.keyboard.press("Enter")
    cells = page.locator("#all tbody tr td:nth-child(4)").all_inner_texts()
    speedups = [float(cell.removesuffix("x")) for cell in cells]
    assert speedups == sorted(speedups) and len(set(speedups)) > 10
    head.click()
    cells = page.locator("#all tbody tr td:nth-child(4)").all_inner_texts()
    assert [float(cell.removesuffix("x")) for cell in cells] == speedups[::-1]
    assert page.locator("#all th[aria-sort]").get_attribute("aria-sort") == "descending"


def test_a_column_of_gains_sorts_by_the_gain(opened, recorded):
    page = opened(recorded)
    head = page.locator("#all th button", has_text="against its parent")
    place = 1 + page.locator("#all th").all_text_contents().index("against its parent")
    head.click()
    gains = []
    for cell in page.locator(f"#all tbody tr td:nth-child({place})").all_inner_texts():
        if cell:
            factor = float(re.search(r"[\d.]+", cell)[0])
            gains.append(1 / factor if cell.endswith("slower") else factor)
    assert gains == sorted(gains) and gains[0] < 1 < gains[-1]


def test_a_mark_in_a_plot_leads_to_its_card(opened, recorded):
    page = opened(recorded)
    mark = page.locator("#curve svg a", has=page.locator("title", has_text="r4-w3-v0")).first
    mark.dispatch_event("click")
    page.wait_for_selector("#card[open] h2")
    assert page.inner_text("#card h2") == "r4-w3-v0"


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
def test_axe_finds_nothing_and_nothing_is_wider_than_the_screen(opened, recorded, scheme, width):
    page = opened(recorded, color_scheme=scheme, viewport={"width": width, "height": 800})
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert _violations(page) == []
    page.evaluate("location.hash = 'r3-w3-v1'")
    page.wait_for_selector("#card[open] h2")
    page.evaluate("for (const part of document.querySelectorAll('#card details')) part.open = true")
    page.wait_for_selector("#card pre.code.diff")
    page.wait_for_timeout(500)
    assert _violations(page) == []


def _violations(page) -> list[str]:
    found = axe.Axe().run(page).response["violations"]
    return [f"{item['id']}: {node['html'][:200]}" for item in found for node in item["nodes"]]


def test_several_runs_pass_too(opened, tmp_path):
    runs = {path.name: RunData(opened_run(path)) for path in (WITH_MODEL, PLAYBOOK)}
    write_comparison(runs, {}, tmp_path / "runs.html")
    page = opened(tmp_path / "runs.html")
    assert _violations(page) == []


def test_nothing_of_a_hostile_run_executes(opened, tmp_path):
    trace = hostile(tmp_path / "run")
    run = RunData(trace)
    write_report(run, tmp_path / "page.html")
    page = opened(tmp_path / "page.html")
    for name in ("r2-w1-v1", run.winner.name):
        page.evaluate(f"location.hash = '{name}'")
        page.wait_for_selector(f"#card[aria-label='{name}'][open] h2")
        page.evaluate(
            "for (const part of document.querySelectorAll('#card details')) part.open = true"
        )
        page.wait_for_timeout(500)
        assert "<script>window.hit" in page.inner_text("#card")
    assert page.evaluate("window.hit") is None
    assert page.evaluate("document.querySelectorAll('img, script:not([id])').length") == 1


@pytest.mark.slow
def test_a_large_run_opens_quickly(opened, tmp_path):
    write_report(RunData(multiplied(tmp_path / "run", 64, 8)), tmp_path / "page.html")
    page = opened(tmp_path / "page.html", viewport={"width": 1280, "height": 800})
    began = time.monotonic()
    page.reload(wait_until="load")
    page.evaluate("document.body.offsetHeight")
    assert time.monotonic() - began < 2
