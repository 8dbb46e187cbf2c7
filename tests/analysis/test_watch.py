"""The page that follows runs: what it serves, to whom, and that it follows."""

import json
import shutil
import threading
import urllib.error
import urllib.request

import pytest

from browser import needs_chromium, opened
from pessimism.analysis.report import watch
from pessimism.analysis.report.progress import progress, speed
from pessimism.analysis.report.study import read_study
from pessimism.analysis.report.watch import Watcher, signature
from pessimism.cli import main
from synthetic import write_run


@pytest.fixture
def served(tmp_path):
    """Serve the runs of a directory; the watcher looks when it is told to."""
    write_run(tmp_path / "runs/0", steps=20_000, every=1000, reached=5000)
    watcher = Watcher([tmp_path / "runs"])
    server = watch._server(watcher, 0)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield watcher, server, f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def fetched(address, host=None):
    request = urllib.request.Request(address, headers={"Host": host} if host else {})
    with urllib.request.urlopen(request, timeout=20) as answer:
        return answer.read().decode()


def test_the_page_is_for_this_machine_alone(served):
    _, server, address = served
    assert server.server_address[0] == "127.0.0.1"
    assert "gpl-sac" in fetched(f"{address}/")
    assert "gpl-sac" in fetched(f"http://localhost:{server.server_port}/")
    for path, host, code in (
        ("/", "elsewhere.example", 403),
        ("/../config.yaml", None, 404),
        ("/0/DONE", None, 404),
    ):
        with pytest.raises(urllib.error.HTTPError) as refused:
            fetched(f"{address}{path}", host)
        assert refused.value.code == code
        refused.value.close()


def test_state_has_new_points_and_survives_a_run_that_disappears(served, tmp_path):
    watcher, _, address = served
    first = json.loads(fetched(f"{address}/state"))
    assert "5,000 of 20,000" in first["sections"]
    assert json.loads(fetched(f"{address}/state?version={first['version']}")) == {"version": first["version"]}
    write_run(tmp_path / "runs/1", seed=1, steps=20_000, every=1000, reached=9000)
    (tmp_path / "runs/1/output.log").write_text("pessimism: no memory left\n")
    watcher.refresh()
    second = json.loads(fetched(f"{address}/state?version={first['version']}"))
    assert second["version"] != first["version"]
    assert "9,000 of 20,000" in second["sections"]
    assert "output.log ends with: pessimism: no memory left" in second["sections"]
    shutil.rmtree(tmp_path / "runs/0")
    watcher.refresh()
    third = json.loads(fetched(f"{address}/state"))
    assert "5,000 of 20,000" not in third["sections"]
    shutil.rmtree(tmp_path / "runs")
    watcher.refresh()
    assert "There are no runs here." in json.loads(fetched(f"{address}/state"))["lead"]


def test_a_page_is_made_again_only_when_a_file_has_changed(tmp_path):
    run = write_run(tmp_path / "runs/0", steps=2000, every=1000)
    watcher = Watcher([tmp_path / "runs"])
    made = watcher.made
    watcher.refresh()
    assert watcher.made == made
    (run / "checkpoints").mkdir(exist_ok=True)
    (run / "checkpoints/metrics.jsonl").touch()  # whatever lies there is not read
    assert len(signature([tmp_path])) == len(signature([run]))
    watcher.refresh()
    assert watcher.made == made
    with (run / "metrics.jsonl").open("a") as file:
        file.write("\n")
    watcher.refresh()
    assert watcher.made > made


def test_progress_of_a_sweep_and_its_time_left(tmp_path):
    """Synthetic runs take 0.08 s a step. Of the planned four, one is done, one trains and two wait."""
    write_run(tmp_path / "a", steps=20_000, every=1000)
    write_run(tmp_path / "b", seed=1, steps=20_000, every=1000, reached=10_000)
    plan = [{"directory": name, "label": "gpl-sac", "env": "Hopper-v4", "seed": i} for i, name in enumerate("abcd")]
    (tmp_path / "suite.json").write_text(json.dumps({"runs": plan}))
    study = read_study([tmp_path])
    assert speed(study.runs[1]) == pytest.approx(1 / 0.08)
    text, table = progress(study)
    assert text.text == (
        "1 run done, 1 training, 2 waiting or stopped; 30,000 of 80,000 steps (38%); about 67 minutes left."
    )  # 50,000 steps of 0.08 s
    assert table.rows[0][1:5] == ("10,000 of 20,000", "50%", "12.5", "13 minutes")
    late = (tmp_path / "b/metrics.jsonl").stat().st_mtime + 1000
    assert progress(study, late)[0].text.startswith("1 run done, 0 training, 3 waiting or stopped")


def test_a_port_in_use_is_refused_in_one_line(served, tmp_path, capsys):
    _, server, _ = served
    assert main(["report", "--watch", "--port", str(server.server_port), str(tmp_path / "runs")]) == 2
    assert "give another --port, or 0 for any" in capsys.readouterr().err


@needs_chromium
@pytest.mark.slow
def test_a_browser_shows_new_points_without_a_reload(served, tmp_path, monkeypatch):
    watcher, server, address = served
    asked, paths = [], []
    monkeypatch.setattr(server.RequestHandlerClass, "log_message", lambda self, *_: paths.append(self.path))
    newest = watcher.snapshot

    def snapshot():
        asked.append(len(asked))
        if len(asked) == 2:  # the page is there and asks for its state: meanwhile the run has trained on
            shutil.rmtree(tmp_path / "runs/0")
            write_run(tmp_path / "runs/0", steps=20_000, every=1000, reached=12_000)
            watcher.refresh()
        return newest()

    assert "5,000 of 20,000" in watcher.html
    monkeypatch.setattr(watcher, "snapshot", snapshot)
    content = opened(f"{address}/")
    assert "12,000 of 20,000" in content
    assert "5,000 of 20,000" not in content.replace("15,000", "")
    assert "Live: updated" in content
    assert paths.count("/") == 1
