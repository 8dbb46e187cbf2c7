"""All suites: the paper's experiments and our own."""

from pessimism.errors import UserError, nearest
from pessimism.experiments.suites import backbones, evidence, paper
from pessimism.experiments.suites.suite import Suite

ALL = (*paper.ALL, *evidence.ALL, *backbones.ALL)
SUITES = {suite.name: suite for suite in ALL}


def find(name: str) -> Suite:
    """Return a suite by its name, or say which ones there are."""
    if name not in SUITES:
        raise UserError(f"unknown suite {name}{nearest(name, SUITES) or ': see pessimism reproduce --list'}")
    return SUITES[name]
