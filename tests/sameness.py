"""What two runs must have in common to be the same run."""

from pathlib import Path

from safetensors.torch import load_file


def files_that_must_agree(directory):
    names = ("metrics.jsonl", "evaluations.npz", "config.yaml", "DONE")
    return {name: (Path(directory) / name).read_bytes() for name in names}


def final_tensors(directory):
    return load_file(sorted(Path(directory, "checkpoints").glob("step_*"))[-1] / "tensors.safetensors")


def assert_same_run(one, other):
    assert files_that_must_agree(one) == files_that_must_agree(other)
    first, second = final_tensors(one), final_tensors(other)
    assert first.keys() == second.keys()
    assert all(first[name].equal(second[name]) for name in first)
    episodes = [
        [line.split(",")[:2] for line in Path(d, "0.monitor.csv").read_text().splitlines()[2:]]
        for d in (one, other)
    ]
    assert episodes[0] == episodes[1]
