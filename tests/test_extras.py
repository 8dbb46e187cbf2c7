"""Optional packages: what is missing is named with the command that installs it, and never stops a default."""

import pytest

from pessimism import UserError, extras
from pessimism.config.schema import LogSettings
from pessimism.training import sinks

REQUIRES = [
    "torch>=2.13",
    "ray[default]>=2.60; extra == 'cluster'",
    'matplotlib>=3.9; extra == "report"',
    "imageio-ffmpeg>=0.6; extra == 'report'",
    "pytest>=8; extra == 'dev'",
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


def test_tensorboard_may_be_missing_and_wandb_only_where_it_is_not_asked_for(monkeypatch):
    assert sinks.check_tracking(LogSettings(tensorboard=True)) is None
    monkeypatch.setattr(sinks, "installed", lambda requirement: None)
    assert "no events are written: pip install 'tensorboard" in str(sinks.check_tracking(LogSettings()))
    assert sinks.check_tracking(LogSettings(tensorboard=False)) is None
    with pytest.raises(UserError, match="W&B is not installed: pip install 'wandb"):
        sinks.check_tracking(LogSettings(wandb="project"))
