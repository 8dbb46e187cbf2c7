"""The report's page in a real browser: no errors, and toggles and values under the pointer that work."""

import pytest

from browser import needs_chromium, visit
from pessimism.analysis.report import write_report
from synthetic import copy_run, write_run

pytestmark = [needs_chromium, pytest.mark.slow]

PLAY = """
const group = document.querySelector('figure g[data-series="0"]');
const chip = document.querySelector('[data-toggle="0"]');
const single = document.querySelector(".single");
const display = (element) => element && getComputedStyle(element).display;
const states = { shown: display(group) };
chip?.click();
states.hidden = display(group);
states.pressed = chip?.getAttribute("aria-pressed");
chip?.click();
states.again = display(group);
states.single = display(single);
document.getElementById("singles")?.click();
states.singleShown = display(single);
const svg = document.querySelector("figure svg");
if (svg) {
  const box = svg.getBoundingClientRect();
  const at = { clientX: box.left + box.width * 0.9, clientY: box.top + box.height / 2, bubbles: true };
  svg.dispatchEvent(new PointerEvent("pointermove", at));
  states.tip = document.getElementById("tip").textContent;
  svg.dispatchEvent(new PointerEvent("pointermove", { ...at, clientX: box.left + box.width * (445.5 / 460) }));
  states.tipAtEnd = document.getElementById("tip").textContent;
  svg.dispatchEvent(new PointerEvent("pointerleave"));
  states.tipHidden = document.getElementById("tip").hidden;
}
return {
  ...states,
  text: document.body.innerText,
  wide: [...document.querySelectorAll(".scroll")].filter((box) => box.scrollWidth > box.clientWidth + 1).length,
  cues: [...document.querySelectorAll(".cue")].filter((cue) => getComputedStyle(cue).display !== "none").length,
  margins: [...document.querySelectorAll("tr > :last-child")]
    .filter((cell) => parseFloat(getComputedStyle(cell).paddingRight)).length,
  figures: document.querySelectorAll("figure svg").length,
  tooWide: document.documentElement.scrollWidth - innerWidth,
  foreign: performance.getEntriesByType("resource").map((entry) => entry.name),
};
"""


def seen(directory, tmp_path, **options):
    found = visit(write_report([directory], tmp_path / "report"), PLAY, **options)
    assert found["errors"] == []
    assert found["foreign"] == []
    assert found["tooWide"] <= 0
    return found


def test_a_page_with_a_mistake_is_found_out(tmp_path):
    page = tmp_path / "page.html"
    page.write_text("<html><head></head><body><script>nothing.here()</script></body></html>")
    assert any("nothing is not defined" in error for error in visit(page)["errors"])


def test_one_run(tmp_path):
    write_run(tmp_path / "runs/seed_0")
    found = seen(tmp_path / "runs", tmp_path)
    assert found["figures"] >= 4  # return, bias, normalised bias, beta
    assert (found["shown"], found["hidden"], found["again"]) == ("inline", "none", "inline")
    assert found["pressed"] == "false"
    assert "gpl-sac: 1 seed." in found["text"]
    assert found["tip"].startswith("environment steps: 9")
    assert "gpl-sac" in found["tip"]
    assert found["tipHidden"] is True


def test_missing_seeds_on_a_phone(tmp_path):
    for algorithm, seeds in (("gpl-sac", 3), ("redq", 2)):
        for seed in range(seeds):
            write_run(tmp_path / f"runs/{algorithm}/{seed}", algorithm, seed=seed)
    found = seen(tmp_path / "runs", tmp_path, width=500)
    assert "redq on Hopper-v4: no run of seed 2, which others have" in found["text"]
    assert (found["single"], found["singleShown"]) == ("none", "inline")
    assert "\u00b1" in found["tip"]
    assert found["wide"] > 0
    assert found["cues"] == found["wide"]  # every table that is cut off says so
    assert found["margins"] == 0  # and none is cut off by an empty margin alone


def test_values_of_published_curves_and_of_the_paper_are_under_the_pointer(tmp_path):
    for seed in range(2):
        write_run(tmp_path / f"runs/{seed}", "redq", seed=seed)
    found = seen(tmp_path / "runs", tmp_path)
    assert "REDQ (UTD20), published on Hopper-v4" in found["tip"]
    assert "REDQ in the paper, Hopper-v2" in found["tipAtEnd"]
    assert "3,007" in found["tipAtEnd"]


def test_two_hundred_runs(tmp_path):
    tasks = ("Hopper-v4", "HalfCheetah-v4", "Walker2d-v4", "Ant-v4", "Humanoid-v4")
    for algorithm in ("gpl-sac", "redq", "sac-20", "mbpo"):
        for task in tasks:
            first = write_run(tmp_path / f"runs/{algorithm}/{task}/0", algorithm, task, every=25_000)
            for seed in range(1, 10):
                copy_run(first, first.with_name(str(seed)), seed)
    found = seen(tmp_path / "runs", tmp_path)
    assert "200 runs of 4 algorithms on 5 tasks: 200 done." in found["text"]
    assert found["figures"] == 5 * 5 + 5


def test_an_empty_directory_says_how_to_make_runs(tmp_path):
    (tmp_path / "runs").mkdir()
    found = seen(tmp_path / "runs", tmp_path)
    assert found["figures"] == 0
    assert "There are no runs here." in found["text"]
    assert "pessimism train gpl-sac" in found["text"]


def test_broken_and_half_written_runs(tmp_path):
    runs = [write_run(tmp_path / f"runs/{seed}", seed=seed) for seed in range(3)]
    (runs[0] / "config.yaml").write_text("algorithm: [")
    with (runs[1] / "metrics.jsonl").open("a") as file:
        file.write('{"step": 1')
    (runs[1] / "DONE").unlink()
    (runs[2] / "evaluations.npz").write_bytes(b"PK half of it")
    found = seen(tmp_path / "runs", tmp_path)
    assert "runs/0: config.yaml cannot be read" in found["text"]
    assert "runs/1: metrics.jsonl: line 21 is not whole; it is not used" in found["text"]
    assert "runs/2: evaluations.npz cannot be read" in found["text"]
    assert "3 runs of 1 algorithm on 1 task: 1 broken, 1 unfinished, 1 done." in found["text"]
