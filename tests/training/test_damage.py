"""Nothing is lost that can be kept, and no damaged file is taken for a whole one."""

import json
import os
import resource
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from pessimism.cli import main
from pessimism.config.resolve import merge, preset_values, validated
from pessimism.errors import UserError
from pessimism.replay.frames import FrameReplay
from pessimism.training.agentfile import load_tensors, save_tensors
from pessimism.training.checkpoint import CheckpointStore, misfit
from pessimism.training.directory import fingerprint, sealed, unsealed
from pessimism.training.loop import Callback
from pessimism.training.run import load_run, run
from sameness import assert_same_run

LINE = "pessimism.envs.toys:pessimism-toys/Line-v0"
NEWEST = "run/checkpoints/step_000000060"


class Heard:
    """A console that keeps what is printed."""

    def __init__(self):
        from io import StringIO

        from rich.console import Console

        self.file = StringIO()
        self.console = Console(file=self.file, width=300)

    @property
    def text(self):
        return self.file.getvalue()


def train(small, steps=60, out="run", callbacks=(), **changes):
    heard = Heard()
    values = {**small, "env": LINE, "steps": steps, "checkpoint": {"every": 20, "keep": 2}, **changes}
    values |= {"evaluation": {"every": 20, "episodes": 2}}
    config = validated(merge(preset_values("sac"), values))
    run(config, Path(out), callbacks=callbacks, console=heard.console)
    return heard.text


def rewrite(path, change):
    """Change a state and seal it again, as somebody would who knows how."""
    state = unsealed(path)
    change(state)
    path.write_bytes(sealed(state))


# Checkpoints


def test_pruning_counts_whole_checkpoints_only_and_keeps_the_one_just_written(small):
    train(small, steps=60)
    tensors = Path(NEWEST, "tensors.safetensors")
    tensors.write_bytes(tensors.read_bytes()[:-1])
    text = train(small, steps=70, checkpoint={"every": 1000, "keep": 1})
    assert "step_000000060 is skipped: tensors.safetensors is not what was written" in text
    assert "from the checkpoint of step 40" in text
    names = sorted(path.name for path in Path("run/checkpoints").iterdir())
    assert names == ["step_000000070"]


def test_a_damaged_newer_checkpoint_does_not_displace_intact_ones(small):
    class Stop(Callback):
        def on_step(self, progress):
            return progress.step < 45

    train(small, steps=60)
    Path(NEWEST, "state.json").write_text("{")
    train(small, steps=61, callbacks=[Stop()], checkpoint={"every": 1000, "keep": 1})  # from 40, saved at 45
    assert Path("run/checkpoints/step_000000045/state.json").exists()
    assert load_run(Path("run"))[1] == 45


def test_what_is_not_named_as_a_checkpoint_is_left_alone(small):
    train(small, steps=40)
    Path("run/checkpoints/step_x").mkdir()
    Path("run/checkpoints/step_000000099").write_text("a file")
    Path("run/checkpoints/step_000000100.old").mkdir()
    text = train(small, steps=60)
    assert "step_000000099 is skipped" in text
    for stray in ("step_x", "step_000000100.old"):
        Path("run/checkpoints", stray).rmdir()  # still there
    Path("run/checkpoints/step_000000099").unlink()
    train(small, steps=60, out="whole")
    assert_same_run("whole", "run")


def test_a_changed_number_in_the_state_is_found(small):
    train(small)
    path = Path(NEWEST, "state.json")
    text = path.read_text()
    for old, new in (
        ('"first": 0', '"first": 1'),
        ('"episode": ', '"episode": 1'),
        ('"bytes": ', '"bytes": 1000000000'),
    ):
        assert old in text
        path.write_text(text.replace(old, new, 1))
        checkpoint, torn = CheckpointStore(Path("run"), 2).load(None)
        assert checkpoint.step == 40
        assert "state.json is not what was written" in torn[0]


def spoil(change):
    """Change the tensors and make all checksums fit."""

    def damage():
        path = Path(NEWEST)
        tensors = load_file(path / "tensors.safetensors")
        change(tensors)
        save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, path / "tensors.safetensors")
        mark = fingerprint(path / "tensors.safetensors")
        rewrite(path / "state.json", lambda state: state.update(tensors=mark))

    return damage


def first_weight(tensors):
    return next(name for name in tensors if name.startswith("agent.actor.") and tensors[name].dim() == 2)


def wrong_rows(change):
    def damage():
        segment = unsealed(Path(NEWEST, "state.json"))["segments"][-1]
        path = Path("run/replay", segment["file"])
        rows = change(load_file(path))
        save_file(rows, path)

        def update(state):
            state["segments"][-1].update(fingerprint(path))

        rewrite(Path(NEWEST, "state.json"), update)

    return damage


def edit(change):
    return lambda: rewrite(Path(NEWEST, "state.json"), change)


CRAFTED = {
    "missing": (spoil(lambda t: t.pop(first_weight(t))), "is missing"),
    "extra": (spoil(lambda t: t.update(extra=torch.zeros(1))), "the tensor extra is unknown"),
    "shape": (spoil(lambda t: t.update({first_weight(t): torch.zeros(3, 3)})), "has to be float32 (16,"),
    "int8": (spoil(lambda t: t.update({(n := first_weight(t)): t[n].to(torch.int8)})), "not int8"),
    "bool": (spoil(lambda t: t.update({(n := first_weight(t)): t[n] > 0})), "not bool"),
    "nan": (spoil(lambda t: t[first_weight(t)].fill_(np.nan)), "holds what is not a number"),
    "actions": (spoil(lambda t: t.update({"episode.actions": torch.zeros(5, 7)})), "episode.actions has to be"),
    "rows of another width": (
        wrong_rows(lambda t: {"rows": t["rows"][:, 1:].contiguous()}),
        "transitions of this task",
    ),
    "fewer rows": (wrong_rows(lambda t: {"rows": t["rows"][1:].contiguous()}), "transitions of this task"),
    "rows of another type": (wrong_rows(lambda t: {"rows": t["rows"].double()}), "transitions of this task"),
    "no rows": (wrong_rows(lambda t: {"other": t["rows"]}), "transitions of this task"),
    "a file elsewhere": (edit(lambda s: s["segments"][0].update(file="../../x")), "not the name of a replay file"),
    "a gap": (edit(lambda s: s["segments"].pop(1)), "do not follow each other"),
    "segments as text": (edit(lambda s: s.update(segments="x")), ""),
    "no segments": (edit(lambda s: s.pop("segments")), ""),
    "no tensors": (edit(lambda s: s.update(tensors=[])), ""),
}


@pytest.mark.parametrize("name", CRAFTED)
def test_a_crafted_checkpoint_is_skipped_before_anything_changes(small, name):
    train(small)
    damage, problem = CRAFTED[name]
    damage()
    text = train(small, steps=70)
    assert "step_000000060 is skipped" in text
    assert problem in text
    train(small, steps=70, out="whole")
    assert_same_run("whole", "run")


def test_a_config_that_was_changed_since_the_checkpoint_is_noticed(small):
    train(small)
    config = Path("run/config.yaml")
    config.write_text(config.read_text().replace("discount: 0.99", "discount: 0.95"))
    with pytest.raises(UserError, match="made with other settings .discount: 0.99 there, 0.95 asked for"):
        load_run(Path("run"))


def test_a_checkpoint_of_other_settings_is_not_resumed(small):
    train(small)
    rewrite(Path(NEWEST, "state.json"), lambda state: state["config"].update(discount=0.95))
    with pytest.raises(UserError, match="made with other settings .discount: 0.95 there, 0.99 asked for"):
        train(small, steps=70)


@pytest.mark.parametrize("change", [{"averages": [1]}, {"td_errors": None}, {"trace": {}}, {"trace": 3}])
def test_a_state_that_another_program_wrote_is_one_line(small, change):
    train(small)
    rewrite(Path(NEWEST, "state.json"), lambda state: state.update(change))
    with pytest.raises(UserError, match="the checkpoint of step 60 in run cannot be read"):
        train(small, steps=70)


def test_eval_says_which_checkpoint_it_skipped(small, capsys):
    train(small)
    Path(NEWEST, "state.json").write_text("{")
    assert main(["eval", "run", "--episodes", "1"]) == 0
    out, err = capsys.readouterr()
    assert "after 40 steps" in out
    assert "checkpoint step_000000060 is skipped: state.json is not what was written" in err


def test_a_replay_of_frames_starts_again_from_nothing():
    def ring():
        return FrameReplay(
            50, (2, 2, 1), stack=2, action_size=1, discount=0.9, n_step=1, generator=torch.Generator()
        )

    def play(replay, episodes):
        from pessimism.types import Transition

        for _ in range(episodes):
            for step in range(5):
                obs = np.full((2, 2, 2, 1), replay.added, np.uint8)
                replay.add(Transition(obs, np.zeros(1, np.float32), 0.0, False, obs, step == 4))

    stored, stale, fresh = ring(), ring(), ring()
    play(stored, 2)
    play(stale, 7)
    for replay in (stale, fresh):
        replay.restart(0)
        replay.append_rows(stored.newest(12))
    assert (stale.added, stale.transitions, stale.ended) == (fresh.added, fresh.transitions, fresh.ended)
    assert stale._valid() == fresh._valid() == stored._valid()


# The directory


def test_a_start_that_was_killed_while_it_wrote_its_settings_can_be_repeated(small):
    Path("run").mkdir()
    Path("run/config.yaml.writing").write_text("algorithm: s")
    Path("run/lock").touch()
    train(small)
    train(small, out="whole")
    assert_same_run("whole", "run")
    assert not list(Path("run").glob("*.writing"))


def test_a_manifest_that_was_never_written_appears(small):
    train(small, steps=40)
    Path("run/manifest.json").unlink()
    train(small, steps=60)
    assert json.loads(Path("run/manifest.json").read_text())["versions"]


@pytest.mark.parametrize("text", ["", "{", '{"step": "x"}', "[]", '{"step": 99, "episodes": 1, "crc32": 5}'])
def test_a_damaged_mark_of_the_end_is_written_again(small, text):
    train(small)
    before = Path("run/DONE").read_bytes()
    Path("run/DONE").write_text(text)
    assert "from the checkpoint of step 60" in train(small)
    assert Path("run/DONE").read_bytes() == before


def test_a_finished_run_without_its_checkpoints_is_not_started_again(small):
    train(small)
    before = Path("run/metrics.jsonl").read_bytes()
    shutil.rmtree("run/checkpoints")
    assert "run is done: 60 steps" in train(small)
    with pytest.raises(UserError, match="run is done .60 steps. and its checkpoints are gone"):
        train(small, steps=80)
    assert Path("run/metrics.jsonl").read_bytes() == before


@pytest.mark.parametrize("way", ["removed", "moved", "replaced"])
def test_a_directory_that_disappears_during_the_run_is_noticed(small, way):
    class Vandal(Callback):
        def on_step(self, progress):
            if progress.step == 45:
                shutil.rmtree("run") if way == "removed" else Path("run").rename("elsewhere")
                if way == "replaced":
                    shutil.copytree("elsewhere", "run")

    with pytest.raises(UserError, match="was removed"):
        train(small, callbacks=[Vandal()])
    assert not Path("run/DONE").exists()


# Logs


def lines(path):
    return Path(path).read_text().splitlines()


@pytest.mark.parametrize("name", ["metrics.jsonl", "timing.jsonl", "0.monitor.csv"])
@pytest.mark.parametrize("damage", ["missing", "shortened", "empty", "changed"])
def test_a_damaged_log_is_said_and_never_padded(small, name, damage):
    train(small, steps=60)
    path = Path("run", name)
    before = path.read_bytes()
    if damage == "missing":
        path.unlink()
    else:
        changed = before.replace(b"1", b"2", 1)
        path.write_bytes({"shortened": before[: len(before) // 2], "empty": b"", "changed": changed}[damage])
    text = train(small, steps=80)
    assert f"{name} {'was changed' if damage == 'changed' else 'has lost'}" in text
    after = path.read_bytes()
    assert b"\0" not in after
    if name == "0.monitor.csv":
        assert lines(path)[1] == "r,l,t" or damage == "changed"
    else:
        assert all(json.loads(line)["step"] for line in lines(path))
        kept = 0 if damage in ("missing", "empty") else before[: len(before) // 2].count(b"\n")
        assert len(lines(path)) >= kept + 2  # and the new ones
    assert "lost" not in train(small, steps=100)


@pytest.mark.parametrize("damage", ["missing", "torn", "changed"])
def test_evaluations_are_restored_from_the_checkpoint(small, damage):
    train(small, steps=60)
    path = Path("run/evaluations.npz")
    if damage == "missing":
        path.unlink()
    elif damage == "torn":
        path.write_bytes(path.read_bytes()[:-9])
    else:
        with np.load(path) as old:
            np.savez(path, **dict(old) | {"results": old["results"] + 1})
    assert "evaluations.npz was missing or damaged, and is restored" in train(small, steps=80)
    train(small, steps=80, out="whole")
    assert_same_run("whole", "run")


def test_a_full_disk_while_a_line_is_written_is_one_line():
    """A limit on the size of files stands in for a disk without room: writing fails in the same place."""

    def limit():
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (2500, 2500))

    command = f"""train sac --env {LINE} --steps 400 --random-steps 300 --evaluation.every 0 --bias.every 0
        --log.every 2 --log.tensorboard false --checkpoint.every 1000 --threads 1 --compile false --out run"""
    result = subprocess.run(
        [sys.executable, "-m", "pessimism", *command.split()],
        capture_output=True,
        text=True,
        preexec_fn=limit,
        check=False,
    )
    assert result.returncode == 2
    assert len(result.stderr.splitlines()) == 1, result.stderr
    assert "cannot write run/" in result.stderr


# Files of agents


def agent():
    return {"actor.weight": torch.randn(3, 2), "count": torch.tensor(5), "log_alpha": torch.tensor(-np.inf)}


def test_every_flipped_bit_of_a_saved_agent_is_found(tmp_path):
    path = tmp_path / "agent.safetensors"
    save_tensors(path, agent(), {"format": "x", "config": "{}"})
    whole = path.read_bytes()
    expected, header = load_tensors(path)
    assert header == {"format": "x", "config": "{}"}
    for place in range(len(whole)):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 1 << place % 8]) + whole[place + 1 :])
        try:
            tensors, texts = load_tensors(path)
        except UserError:
            continue
        assert texts == header  # a space of the header's padding
        assert tensors.keys() == expected.keys()
        assert all(torch.equal(tensors[name], expected[name]) for name in expected)


def test_an_agent_without_a_checksum_is_refused(tmp_path):
    save_file(agent(), tmp_path / "old.safetensors", {"format": "x"})
    with pytest.raises(UserError, match="has no checksum"):
        load_tensors(tmp_path / "old.safetensors")


def test_saving_follows_links_and_makes_directories(tmp_path):
    (tmp_path / "link").symlink_to(tmp_path / "new" / "agent.safetensors")
    save_tensors(tmp_path / "link", agent(), {})
    assert (tmp_path / "link").is_symlink()
    assert load_tensors(tmp_path / "new" / "agent.safetensors")[0].keys() == agent().keys()
    assert not list((tmp_path / "new").glob("*.writing"))


def test_saving_onto_what_is_no_regular_file_is_refused(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to("pipe")
    (tmp_path / "circle").symlink_to("circle")
    for name, message in (("pipe", "not a regular file"), ("link", "not a regular file"), (".", "not a regular"),
                          ("circle", "cannot write"), ("pipe/x", "cannot write")):  # fmt: skip
        with pytest.raises(UserError, match=message):
            save_tensors(tmp_path / name, agent(), {})
    assert (tmp_path / "pipe").is_fifo()
    assert (tmp_path / "link").is_symlink()


def test_missing_and_irregular_files_are_named(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for name, message in (
        ("nowhere", "there is no such file"),
        ("pipe", "not a regular file"),
        (".", "not a regular file"),
    ):
        with pytest.raises(UserError, match=message):
            load_tensors(tmp_path / name)


def test_what_does_not_fit_is_named():
    expected = agent()
    assert misfit(expected, agent()) == ""
    assert "actor.weight is missing" in misfit(expected, {"count": expected["count"]})
    assert "has to be float32 (3, 2), not float64 (3, 2)" in misfit(
        expected, expected | {"actor.weight": expected["actor.weight"].double()}
    )
    assert "log_alpha holds what is not a number" in misfit(
        expected, expected | {"log_alpha": torch.tensor(np.nan)}
    )
