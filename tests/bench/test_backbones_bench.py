"""The bench of presets: what it runs, and how it reads the times."""

import pytest
import torch

from pessimism.bench.backbones import PEERS, PRESETS, BackbonesReport, backbone_entries
from pessimism.bench.preset_steps import Operand, Products, preset_config, preset_step
from pessimism.bench.report import Measurement
from pessimism.bench.worker import Setting
from pessimism.config.presets import STATE_PRESETS

SMALL = Setting(batch=4, replay=64, obs_size=3, action_size=2)


def test_every_preset_on_states_takes_part():
    assert set(STATE_PRESETS) - set(PRESETS) == {"mbpo"}
    own = [entry.label for entry in backbone_entries(SMALL, None)]
    assert own == [f"{kind}-{name}" for name in PRESETS for kind in ("preset", "products")]


def test_peers_are_run_by_their_own_interpreter(tmp_path):
    peers = backbone_entries(SMALL, tmp_path)[-len(PEERS) :]
    assert [(entry.label, entry.python) for entry in peers] == [(name, tmp_path) for name in PEERS]


def test_a_width_is_that_of_the_critics():
    config = preset_config("gpl-xqc", SMALL, 256, compile=False)
    assert (config.critic.hidden, config.hidden, config.batch_size) == (256, 256, 4)
    assert preset_config("gpl-xqc", SMALL, None, compile=False).critic.hidden == 512


def test_products_are_noted_with_their_layout():
    left, right = torch.randn(3, 4, 5), torch.randn(3, 6, 5).mT
    with Products() as products:
        left @ right
        left + 1
    assert products.seen == [(Operand((3, 4, 5), (20, 5, 1)), Operand((3, 5, 6), (30, 1, 5)))]
    assert products.seen[0][1].filled().stride() == (30, 1, 5)


def test_products_of_a_step_are_those_of_its_updates():
    with Products() as products:
        preset_step_products = preset_step(Setting(**{**vars(SMALL), "contestant": "products-gpl-xqc@8"}))
    rows = [left.shape for left, right in products.seen if right.shape[-2:] == (8, 101) and left.shape[0] == 2]
    # 6 critic updates in 3 environment steps, of target and online critics, and 2 policy updates
    assert len(rows) == 6 * 2 + 2
    assert rows.count((2, 4, 8)) == len(rows)
    first = [left.shape for left, right in products.seen if tuple(right.shape) == (2, 5, 8)]
    assert first.count((2, 8, 5)) == 12  # current and next pairs as one batch
    preset_step_products()


def line(name, seconds):
    return Measurement(name, "plain", [seconds])


def test_ratios_are_to_gpl_sac_and_shares_to_the_own_products():
    report = BackbonesReport(
        {},
        [
            line("preset-gpl-sac", 0.2),
            line("products-gpl-sac", 0.15),
            line("preset-gpl-xqc", 0.05),
            line("products-gpl-xqc", 0.04),
            line("sbx-droq", 0.1),
        ],
    )
    by_name = {entry["name"]: entry for entry in report.record()["contestants"]}
    assert list(by_name) == ["preset-gpl-sac", "preset-gpl-xqc", "sbx-droq"]
    assert by_name["preset-gpl-xqc"]["ratio_to_gpl_sac"] == pytest.approx(0.25)
    assert by_name["preset-gpl-xqc"]["share_of_products"] == pytest.approx(0.8)
    assert by_name["sbx-droq"]["ratio_to_gpl_sac"] == pytest.approx(0.5)
    assert by_name["sbx-droq"]["share_of_products"] is None
