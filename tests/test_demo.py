"""The demo's stopping rule: two solved evaluations in a row."""

import json
from pathlib import Path

import pytest

from pessimism import records
from pessimism.config.resolve import merge, preset_values, validated
from pessimism.tools.demo import SOLVED, TASK, UntilSolved, solved
from pessimism.training.state import Progress

ABOVE, BELOW = SOLVED + 1, SOLVED - 1


@pytest.mark.parametrize(
    ("returns", "expected"),
    [
        ([], False),
        ([ABOVE], False),
        ([ABOVE, BELOW, ABOVE], False),
        ([BELOW, ABOVE, ABOVE], True),
        ([ABOVE, ABOVE, BELOW], False),
    ],
)
def test_the_demo_ends_after_two_solved_evaluations_in_a_row(
    tmp_path: Path, returns: list[float], expected: bool
) -> None:
    callback = UntilSolved()
    rows = [{"step": 100 * n, "eval/mean_reward": value} for n, value in enumerate(returns, start=1)]
    for row in rows:
        callback.on_metrics(int(row["step"]), row)
        callback.on_metrics(int(row["step"]), {"train/beta": 0.5})
    (tmp_path / records.METRICS).write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert callback.on_step(Progress()) is not expected
    assert solved(tmp_path) is expected


def test_the_demos_settings_fit_together() -> None:
    config = validated(merge(preset_values("gpl-sac"), TASK))
    assert config.bias.every == config.evaluation.every  # the curve shows both at the same steps
