"""Links between Markdown files work where GitHub shows them."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FILES = [path for folder in (".", "docs", "docs/reference") for path in sorted((ROOT / folder).glob("*.md"))]
CODE = re.compile(r"^```.*?^```|`[^`\n]+`", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^)\s]+)\)")


def anchors(path):
    """Return the ids that GitHub gives to the headings of a file."""
    headings = re.findall(r"^#+ (.+)$", path.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_relative_links_point_to_something(path):
    for link in LINK.findall(CODE.sub("", path.read_text())):
        target, _, anchor = link.partition("#")
        if re.match(r"\w+:", target):
            continue
        found = path.parent / target if target else path
        assert found.exists(), link
        generated = (
            found.parent.name == "reference"
        )  # headings from the library's tables: the site's build checks them
        if anchor and found.suffix == ".md" and not generated:
            assert anchor in anchors(found), link
