"""Each fault of `mutants.py` is noticed by the fast tests that guard it."""

import re

import pytest

from mutants import MUTANTS, TESTS, failures


@pytest.mark.parametrize("name", MUTANTS)
def test_mutant_still_fits_the_source_and_its_guards_exist(name):
    mutant = MUTANTS[name]
    mutant.check()
    for guard in mutant.guards:
        file, _, test = guard.partition("::")
        function = re.sub(r"\[.*", "", test)
        assert f"def {function}" in (TESTS / file).read_text(), guard


@pytest.mark.slow
@pytest.mark.parametrize("name", MUTANTS)
def test_mutant_is_noticed(name):
    noticed, tail = failures(MUTANTS[name])
    assert noticed, tail
