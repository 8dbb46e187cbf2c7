"""Optional packages: what is missing is named with the command that installs it, and never stops a default."""

import sys
from pathlib import Path

import pytest
from rich.console import Console

from pessimism import UserError, extras
from pessimism.config.resolve import resolved
from pessimism.training.run import run

REQUIRES = [
    "torch>=2.13",
    "ray[default]>=2.60; extra == 'cluster'",
    'matplotlib>=3.9; extra == "report"',
    "imageio-ffmpeg>=0.6; extra == 'report'",
    "pytest>=8; extra == 'dev'",
    "mkdocs-material>=9; extra == 'docs'",
]


def test_extras_come_from_the_metadata(monkeypatch):
    monkeypatch.setattr(extras.metadata, "requires", lambda name: REQUIRES)
    assert extras.extras() == {
        "cluster": ["ray[default]>=2.60"],
        "report": ["matplotlib>=3.9", "imageio-ffmpeg>=0.6"],
    }
    assert str(extras.missing("Ray", "cluster")) == "Ray is not installed: pip install 'ray[default]>=2.60'"


def test_a_package_is_looked_up_by_its_name_alone():
    assert extras.package_name("ray[default]>=2.60") == "ray"
    assert extras.package_name("dm-control<1.1,>=1.0.40") == "dm-control"
    assert extras.installed("torch>=1") is not None
    assert extras.installed("no-such-package-here>=1") is None


def test_tensorboard_may_be_missing_and_wandb_only_where_it_is_not_asked_for(monkeypatch, small, capsys):
    for name in ("torch.utils.tensorboard", "wandb"):
        monkeypatch.setitem(sys.modules, name, None)  # so that importing it fails
    console = Console(width=400)
    run(resolved("sac", small | {"log": {"tensorboard": True}}), Path("run"), console=console)
    assert (
        "TensorBoard is not installed, so no events are written: pip install 'tensorboard"
        in capsys.readouterr().out
    )
    with pytest.raises(UserError, match="W&B is not installed: pip install 'wandb"):
        run(resolved("sac", small | {"log": {"wandb": "project"}}), Path("other"), console=console)
    assert not Path("other").exists()
