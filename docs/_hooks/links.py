"""Links that leave docs/: the site gets a page, or a copy, of each file that one points to.

On GitHub `[values.py](../src/pessimism/values.py)` opens the file. On the site the same link opens a page that
shows it. Pictures and data are copied.
"""

import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PLACE = "repository"  # folder of the site for files from outside docs/
LINK = re.compile(r"(\]\()([^)\s#]+)(#[^)\s]*)?(\))")
CODE = re.compile(r"^(`{3,}).*?^\1`*$|``.+?``|`[^`\n]+`", re.MULTILINE | re.DOTALL)
LANGUAGES = {".py": "python", ".cpp": "cpp", ".hpp": "cpp", ".sh": "bash", ".yml": "yaml", ".toml": "toml"}
SHOWN = (".md", ".ipynb", *LANGUAGES)


def on_files(files: Files, config: Any) -> Files:  # noqa: ANN401
    """Add all files outside docs/ that pages link to, and those that these link to."""
    pages = [DOCS / file.src_uri for file in files.documentation_pages()]
    added: set[Path] = set()
    while pages:
        page = pages.pop()
        for path in sorted(_outside(page) - added):
            added.add(path)
            files.append(_file(path, config))
            if path.suffix == ".md":
                pages.append(path)
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:  # noqa: ANN401
    """Point the links of a page to the site's copies."""
    source = _source(page.file.src_uri)
    if source.suffix not in (".md", ".ipynb"):
        return markdown

    def changed(match: re.Match[str]) -> str:
        start, target, anchor, end = match.groups(default="")
        path = _target(source, target)
        if path is None or not path.exists():
            return match[0]  # MkDocs warns of it, and a strict build fails
        found = os.path.relpath(_uri(path), Path(page.file.src_uri).parent)
        return f"{start}{found}{anchor}{end}"

    return _outside_code(markdown, lambda text: LINK.sub(changed, text))


def _outside(page: Path) -> set[Path]:
    """Return the files outside docs/ that a page links to."""
    found: set[Path] = set()

    def note(text: str) -> str:
        targets = [_target(page, match[2]) for match in LINK.finditer(text)]
        found.update(path for path in targets if path and path.exists() and not path.is_relative_to(DOCS))
        return text

    if page.exists():
        _outside_code(page.read_text(), note)
    return found


def _outside_code(markdown: str, change: Callable[[str], str]) -> str:
    """Return the text with a change made everywhere but in code."""
    parts, end = [], 0
    for match in CODE.finditer(markdown):
        parts += [change(markdown[end : match.start()]), match[0]]
        end = match.end()
    return "".join([*parts, change(markdown[end:])])


def _target(page: Path, target: str) -> Path | None:
    """Return the file that a relative link points to."""
    return None if re.match(r"[a-z]+:|/|<", target) else Path(os.path.normpath(page.parent / target))


def _uri(path: Path) -> str:
    """Return the place of a file in the site's sources."""
    if path.is_relative_to(DOCS):
        page = path.with_suffix(".html")  # a report has one already
        return (page if page.exists() else path).relative_to(DOCS).as_posix()
    place = f"{PLACE}/{path.relative_to(ROOT).as_posix()}"
    return f"{place}.md" if path.suffix in SHOWN[1:] else place


def _source(uri: str) -> Path:
    """Return the file that a page of the site shows."""
    first, _, rest = uri.partition("/")
    if first != PLACE:
        return DOCS / uri
    return ROOT / (rest if (ROOT / rest).exists() else rest.removesuffix(".md"))


def _file(path: Path, config: Any) -> File:  # noqa: ANN401
    if path.suffix not in SHOWN:
        return File.generated(config, _uri(path), abs_src_path=str(path))
    return File.generated(config, _uri(path), content=_shown(path))


def _shown(path: Path) -> str:
    """Return a file as a page."""
    text = path.read_text()
    if path.suffix == ".md":
        return text
    if path.suffix == ".ipynb":
        cells = json.loads(text)["cells"]
        return "\n\n".join(_cell(cell["cell_type"], "".join(cell["source"])) for cell in cells)
    return f"# {path.name}\n\n`{path.relative_to(ROOT)}`\n\n{_fenced(LANGUAGES[path.suffix], text)}"


def _cell(kind: str, source: str) -> str:
    return source if kind == "markdown" else _fenced("python", source)


def _fenced(language: str, text: str) -> str:
    return f"````{language}\n{text.rstrip()}\n````\n"
