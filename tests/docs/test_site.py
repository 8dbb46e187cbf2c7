"""The site: built strictly, the same links as on GitHub, no other host, and readable in a real browser."""

import functools
import http.server
import json
import os
import re
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from browser import look, needs_chromium
from pessimism.cli import _parser
from pessimism.config.presets import PRESETS
from pessimism.config.resolve import option_names
from pessimism.config.strategies import STRATEGIES

ROOT = Path(__file__).parents[2]
PAGES = """
index algorithms tutorial concepts sb3 robots performance paper
reference/python reference/commands reference/settings
""".split()
ELSEWHERE = r"""["']?(?:https?:)?//"""
ASKING = re.compile(rf"<(?:script|img|iframe|source)[^>]*\ssrc={ELSEWHERE}|<link[^>]*href={ELSEWHERE}")
MEASURE = """
const wide = document.documentElement.scrollWidth - document.documentElement.clientWidth;
const main = document.querySelector("article");
const loaded = performance.getEntriesByType("resource").map((entry) => new URL(entry.name).host);
const broken = [...document.images].filter((image) => !image.naturalWidth).map((image) => image.src);
return {
  wide, broken, hosts: [...new Set(loaded)], words: main.innerText.split(/\\s+/).length,
  scheme: document.body.dataset.mdColorScheme, paper: getComputedStyle(document.body).backgroundColor,
};
"""

# One process for all: each would build the site.
pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800), pytest.mark.xdist_group("site")]


def build(root, out):
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", out]
    env = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    return subprocess.run(command, cwd=root, env=env, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    out = tmp_path_factory.mktemp("site")
    result = build(ROOT, out)
    assert result.returncode == 0, result.stderr
    assert "WARNING" not in result.stderr
    return out


@pytest.fixture(scope="module")
def address(site):
    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *_):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=site)) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def text(site, page):
    return (site / f"{page}.html").read_text()


def test_no_page_asks_another_host(site):
    for page in site.rglob("*.html"):
        assert not ASKING.search(page.read_text()), page
    for style in site.rglob("*.css"):
        assert not re.search(rf"(?:@import|url\()\s*{ELSEWHERE}", style.read_text()), style


def test_files_outside_docs_are_pages_and_copies(site):
    assert 'href="repository/CONTRIBUTING.html"' in text(site, "index")
    assert 'href="repository/examples/quickstart.ipynb.html"' in text(site, "index")
    assert "GPLSAC" in text(site, "repository/examples/quickstart.ipynb")
    assert "pairwise_distance" in text(site, "repository/src/pessimism/values.py")
    picture = "studies/line/figure.png"
    assert (site / "repository" / picture).read_bytes() == (ROOT / picture).read_bytes()
    assert 'href="example-report/report.html"' in text(site, "experiments")  # the page, where GitHub shows the .md


def test_the_reference_is_made_from_the_tables(site):
    python, commands, settings = (text(site, f"reference/{name}") for name in ("python", "commands", "settings"))
    for name, entry in PRESETS.items():
        assert f'id="pessimism.{entry.python}"' in python
        assert f'id="{name}"' in settings
    group = next(action for action in _parser()._actions if isinstance(action.choices, dict))
    for name in group.choices:
        assert f'<h2 id="{name}"' in commands
    for name in {*option_names(), *(f"pessimism.{name}" for name in STRATEGIES)} - {"pessimism.name"}:
        assert f"<code>{name}</code>" in settings or f'id="{name.removeprefix("pessimism.")}"' in settings, name
    assert "arguments of the environment, as {name: value}" in settings
    assert "__getattr__" not in python


def test_search_finds_words_of_the_pages(site):
    index = json.loads((site / "search/search_index.json").read_text())
    assert any("dual TD-learning" in document["text"] for document in index["docs"])


@pytest.mark.parametrize("target", ["../no-such-file.py", "other.md#no-such-part", "no-such-page.md"])
def test_a_broken_link_fails(tmp_path, target):
    (tmp_path / "docs").mkdir()
    for name in ("site.css", "_hooks"):
        (tmp_path / "docs" / name).symlink_to(ROOT / "docs" / name)
    (tmp_path / "docs/index.md").write_text(f"# Start\n\n[A link]({target})\n")
    (tmp_path / "docs/other.md").write_text("# Other\n\n## A part\n")
    whole = (ROOT / "mkdocs.yml").read_text()
    start, end = whole.index("nav:"), whole.index("exclude_docs:")
    (tmp_path / "mkdocs.yml").write_text(f"{whole[:start]}nav: [index.md, other.md]\n{whole[end:]}")
    result = build(tmp_path, tmp_path / "site")
    assert result.returncode == 1
    assert result.stderr.count("WARNING") == 1
    assert "no-such" in result.stderr


@needs_chromium
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390], ids=["desktop", "phone"])
def test_pages_in_a_browser(site, address, width, dark):
    found = look(site, address, [f"{page}.html" for page in PAGES], MEASURE, width=width, dark=dark)
    assert found.pop("errors") == []
    assert len(found) == len(PAGES)
    for page, seen in found.items():
        assert seen["broken"] == [], page
        assert seen["hosts"] == [address.removeprefix("http://")], page
        assert seen["wide"] <= 0, f"{page} is {seen['wide']} pixels too wide"
        assert seen["words"] > 100, page
        assert seen["scheme"] == ("slate" if dark else "default"), page
        assert (sum(map(int, re.findall(r"\d+", seen["paper"])[:3])) < 384) is dark, page
