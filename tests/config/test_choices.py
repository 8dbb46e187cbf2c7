"""Tables from the names of settings to the code that implements them."""

import inspect
from pkgutil import resolve_name

import gymnasium
import pytest

from pessimism.config import choices, tasks
from pessimism.config.settings import CriticSettings
from pessimism.config.strategies import STRATEGIES, PenaltySettings
from pessimism.envs import make
from pessimism.nn.critic import EnsembleCritic
from pessimism.strategies import FixedPenalty, Pessimism
from pessimism.training.build import build_critic, build_strategy

TABLES = {name: table for name, table in vars(choices).items() if name.isupper() and isinstance(table, dict)}


@pytest.mark.parametrize("table", TABLES)
def test_every_choice_names_a_function_of_ours(table):
    for name, path in TABLES[table].items():
        assert resolve_name(path).__module__ == path.partition(":")[0], name
        assert path.startswith("pessimism."), name


@pytest.mark.parametrize("name", STRATEGIES)
def test_every_strategy_takes_the_fields_of_its_entry(name):
    entry = STRATEGIES[name]
    strategy = resolve_name(entry.implementation)
    assert issubclass(strategy, Pessimism)
    assert issubclass(strategy, FixedPenalty) == issubclass(entry, PenaltySettings)
    parameters = inspect.signature(strategy).parameters
    made_of_several = {"measure", "optimism_steps", "samples"} if issubclass(entry, PenaltySettings) else set()
    assert set(entry.model_fields) - {"name"} - made_of_several <= set(parameters)
    for field, info in entry.model_fields.items():
        default = parameters[field].default if field in parameters else inspect.Parameter.empty
        if field not in ("optimism", "name") and default is not inspect.Parameter.empty:
            assert default == info.default, field


@pytest.mark.parametrize("name", STRATEGIES)
def test_every_strategy_is_built_from_its_entry(name):
    built = build_strategy(STRATEGIES[name](), members=3)
    assert type(built) is resolve_name(STRATEGIES[name].implementation)


@pytest.mark.parametrize("form", choices.CRITIC_FORMS)
def test_every_form_of_critic_is_an_ensemble_of_the_size_asked_for(form):
    critic = build_critic(CriticSettings(form=form, members=3, hidden=8, atoms=2), 5)
    assert isinstance(critic, EnsembleCritic)
    assert critic.head.weight.shape == (3, 8, 2)


def test_a_strategy_is_given_what_it_asks_for_and_nothing_else():
    subset = build_strategy(STRATEGIES["subset-minimum"](subset=1), members=7, unknown=1)
    assert len(subset.left_out) == 7
    assert build_strategy(STRATEGIES["minimum"](), members=7).state_dict() == {}


def test_a_penalty_has_the_measure_and_the_annealing_of_its_settings():
    settings = STRATEGIES["fixed"](beta=0.25, measure="std", optimism=0.5, optimism_steps=10)
    penalty = build_strategy(settings)
    assert penalty.disagreement is resolve_name(choices.MEASURES["std"])
    penalty.advance(5)
    assert (float(penalty.beta), float(penalty.optimism)) == (0.25, 0.25)


@pytest.mark.parametrize("prefix", tasks.FAMILIES)
def test_a_family_of_environments_is_made_from_its_entry(prefix, monkeypatch):
    """A class in its place is given the task's one name, the size and camera of the view, and other arguments."""
    given = []

    def environment(task, **arguments):
        given.append((task, arguments))
        return gymnasium.make("InvertedPendulum-v4")

    entry, one = tasks.FAMILIES[prefix], f"{prefix}one"
    monkeypatch.setattr(make, "resolve_name", {entry.implementation: environment}.__getitem__)
    monkeypatch.setitem(tasks.FAMILIES, prefix, entry._replace(task=lambda name: one if name == "1" else None))
    assert tasks.canonical("1") == one
    assert tasks.canonical("2") == "2"
    make.make(one, quality="fast")
    assert given == [(one, {"quality": "fast"})]
