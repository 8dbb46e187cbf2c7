"""A real browser for pages: opens one, plays a script in it, and returns what that saw."""

import html
import json
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
FLAGS = """
--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking
--disable-component-update --disable-sync --enable-logging=stderr --virtual-time-budget=3000 --dump-dom
""".split()
CATCH = "<script>window.seen = []; addEventListener('error', (event) => seen.push(event.message));</script>"

needs_chromium = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium here: make browser, or install it")


def visit(page: Path, script: str = "return {}", width: int = 1100) -> dict:
    """Return what a script gives in a page, with `errors`: what the page threw or wrote to the console."""
    play = f"""<script>addEventListener("load", () => {{
      const found = (() => {{ {script} }})();
      document.documentElement.setAttribute("data-found", JSON.stringify({{ ...found, errors: seen }}));
    }});</script>"""
    text = page.read_text().replace("<head>", f"<head>{CATCH}", 1).replace("</body>", f"{play}</body>", 1)
    probe = page.with_name("probe.html")
    probe.write_text(text)
    options = [f"--user-data-dir={page.parent / 'browser'}", f"--window-size={width},900"]
    command = [str(CHROMIUM), *FLAGS, *options, probe.as_uri()]
    result = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    match = re.search(r'data-found="([^"]*)"', result.stdout)
    console = re.findall(r"CONSOLE.*", result.stderr)
    found = json.loads(html.unescape(match[1])) if match else {"errors": ["the page's script did not run"]}
    return found | {"errors": [*found["errors"], *console]}


FRAMES = """<!doctype html><title>frames</title><body><script>
const look = (page) => new Promise((done) => {
  const frame = document.createElement("iframe");
  frame.style = "width: WIDTHpx; height: 900px; border: 0";
  frame.src = page;
  frame.onload = () => setTimeout(() => {
    const found = frame.contentWindow.Function(SCRIPT)();
    frame.remove();
    done([page, found]);
  }, 300);
  document.body.append(frame);
});
(async () => {
  const found = [];
  for (const page of PAGES) found.push(await look(page));
  document.documentElement.setAttribute("data-found", JSON.stringify(Object.fromEntries(found)));
})();
</script>"""


def look(site: Path, address: str, pages: list[str], script: str, *, width: int, dark: bool) -> dict:
    """Return what a script gives in each page of a served site, with `errors`: what the console shows.

    Pages are shown in frames, because a window is 500 pixels wide at least, and a phone is not.
    """
    parts = {"WIDTH": str(width), "SCRIPT": json.dumps(script), "PAGES": json.dumps(pages)}
    text = FRAMES
    for name, part in parts.items():
        text = text.replace(name, part)
    probe = site / f"frames-{width}-{dark}.html"
    probe.write_text(text)
    result = _dumped(f"{address}/{probe.name}", 120, f"--blink-settings=preferredColorScheme={int(not dark)}")
    match = re.search(r'data-found="([^"]*)"', result.stdout)
    found = json.loads(html.unescape(match[1])) if match else {}
    return found | {"errors": re.findall(r"CONSOLE.*", result.stderr)}


def opened(address: str, seconds: float = 12) -> str:
    """Return the content of a served page after so many seconds of the browser's time."""
    return _dumped(address, seconds).stdout


def _dumped(address: str, seconds: float, *more: str) -> subprocess.CompletedProcess[str]:
    flags = [flag for flag in FLAGS if not flag.startswith("--virtual-time-budget")]
    with tempfile.TemporaryDirectory() as profile:
        options = [f"--user-data-dir={profile}", f"--virtual-time-budget={1000 * seconds:.0f}", *more]
        command = [str(CHROMIUM), *flags, "--window-size=1400,950", *options, address]
        return subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
