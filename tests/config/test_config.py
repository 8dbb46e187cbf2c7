"""Settings: presets with the paper's numbers, sources, overrides, refusals."""

import pytest
import yaml

from pessimism.config.presets import PRESETS
from pessimism.config.resolve import (
    differences,
    dump_yaml,
    leaves,
    merge,
    option_names,
    preset_values,
    resolved,
    sources,
    validated,
)
from pessimism.config.schema import Config
from pessimism.config.tasks import target_entropy
from pessimism.errors import UserError


def build(name, **changes):
    return validated(merge(preset_values(name), {"env": "Hopper-v4", **changes}))


def test_gpl_sac_has_the_numbers_of_the_papers_table():
    config = build("gpl-sac")
    assert (config.replay_capacity, config.batch_size, config.random_steps) == (1_000_000, 256, 5000)
    assert (config.lr, config.updates_per_step, config.discount, config.tau) == (3e-4, 20, 0.99, 0.005)
    assert (config.alpha, config.alpha_lr, config.alpha_beta1) == (1.0, 1e-4, 0.5)
    assert (config.critic.members, config.critic.hidden, config.critic.form) == (10, 256, "residual")
    assert (config.pessimism.name, config.pessimism.beta, config.pessimism.beta1) == ("learned", 0.5, 0.5)
    assert (config.evaluation.every, config.evaluation.episodes) == (1000, 5)
    assert (config.bias.every, config.bias.episodes) == (1000, 10)


@pytest.mark.parametrize(("name", "updates"), [("sac-20", 20), ("sac", 1)])
def test_sac_is_two_plain_critics_with_half_a_distance(name, updates):
    config = build(name)
    assert (config.updates_per_step, config.critic.form, config.critic.members) == (updates, "plain", 2)
    assert (config.pessimism.name, config.pessimism.beta) == ("fixed", 0.5)


@pytest.mark.parametrize(
    ("task", "entropy"),
    [("Hopper-v4", -1), ("HalfCheetah-v5", -3), ("Walker2d-v4", -3), ("Ant-v4", -4), ("Humanoid-v4", -2)],
)
def test_target_entropies_of_the_papers_tasks(task, entropy):
    assert target_entropy(task, 99)[0] == entropy


def test_other_tasks_take_minus_the_number_of_actions():
    assert target_entropy("Pusher-v5", 7)[0] == -7


@pytest.mark.parametrize("name", PRESETS)
def test_every_setting_has_a_source(name):
    config = build(name)
    origin = sources(config, "the task")
    assert set(origin) == {path for path, _ in leaves(config)}
    assert all(origin.values())
    entry = PRESETS[name]
    for path in entry.changes:
        assert origin[path] == entry.sources.get(path, entry.source)


@pytest.mark.parametrize(
    ("name", "path", "env", "source"),
    [
        ("curl", "action_repeat", "dmc/cheetah-run", "the comparison in Yarats et al., 2022"),
        ("curl", "steps", "dmc/cheetah-run", "paper, Sec. 5.2"),
        ("curl", "batch_size", "dmc/cheetah-run", "Laskin et al., 2020"),
        ("drqv2", "bias.every", "dmc/cheetah-run", "this library"),
        ("drqv2", "alpha", "dmc/cheetah-run", "this library"),
        ("drqv2", "action_repeat", "dmc/cheetah-run", "paper, Table of GPL-DrQ"),
        ("drqv2", "steps", "dmc/walker-walk", "paper, Table of GPL-DrQ"),  # and DrQ-v2's, for its easy tasks
        (
            "gpl-sac-e2e",
            "pessimism.lr",
            "Ant-v4",
            "as dual TD-learning; paper, App. D.2: standard gradient descent",
        ),
    ],
)
def test_a_source_is_the_one_that_the_value_comes_from(name, path, env, source):
    assert sources(resolved(name, {"env": env}), "the task")[path].startswith(source)


def test_settings_by_task_follow_the_originals():
    assert resolved("mbpo", {"env": "InvertedPendulum-v4"}).random_steps == 500
    for name, camera in (("curl", 0), ("sac-pixels", 0), ("drqv2", None)):  # None: 2, the task's own
        assert resolved(name, {"env": "dmc/quadruped-walk"}).pixels.camera == camera


def test_a_written_config_is_read_back_the_same_with_its_sources_beside_it():
    config = build("gpl-sac", env_kwargs={"forward_reward_weight": 2.0}, log={"wandb": "a: b # c"})
    text = dump_yaml(config, "the task")
    assert validated(yaml.safe_load(text)) == config
    assert "lr: 0.0003  # paper, Table of GPL-SAC hyper-parameters" in text


def test_another_strategy_starts_from_its_own_defaults():
    config = build("gpl-sac", pessimism={"name": "fixed", "beta": 0.25})
    assert config.pessimism.model_dump() == {
        "name": "fixed",
        "beta": 0.25,
        "measure": "wasserstein1",
        "optimism": 0.0,
        "optimism_steps": 50_000,
        "actor_share": 1.0,
        "samples": 1,
    }


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"stepps": 3}, "unknown setting stepps; did you mean steps"),
        ({"pessimism": {"betta": 3}}, "unknown setting pessimism.betta; did you mean pessimism.beta"),
        ({"steps": 0}, "steps: .*greater than or equal to 1, not 0"),
        ({"steps": "many"}, "steps: .*integer"),
        ({"discount": 1.0}, "discount: .*less than 1"),
        ({"critic": {"members": 1}}, "take 2 or more critics"),
        ({"critic": {"form": "round"}}, "critic.form: .*'residual'.* or '.*', not 'round'"),
        ({"lr": float("nan")}, "lr: .*finite"),
        ({"pessimism": {"name": "hope"}}, "there is no strategy hope, only .*learned.*, subset-minimum"),
        ({"pessimism": {"name": "minimum", "beta": 1}}, "the strategy minimum has no setting beta"),
        ({"replay_capacity": 10}, "hold a batch of 256"),
    ],
)
def test_a_wrong_setting_is_one_line(changes, message):
    with pytest.raises(UserError, match=message) as caught:
        build("gpl-sac", **changes)
    assert "\n" not in str(caught.value)


def test_one_critic_is_enough_for_the_minimum():
    assert build("gpl-sac", critic={"members": 1}, pessimism={"name": "minimum"}).critic.members == 1


def test_differences_name_what_changes_the_numbers_and_nothing_else():
    old, new = build("gpl-sac"), build("gpl-sac", steps=5, threads=1, log={"every": 7}, pessimism={"beta": 0.75})
    assert differences(old, new) == ["pessimism.beta: 0.5 there, 0.75 asked for"]


def test_options_cover_all_strategies():
    names = option_names()
    assert {"steps", "critic.members", "pessimism.beta", "pessimism.name", "bias.every"} <= set(names)
    assert len(names) == len(set(names))


def test_a_config_cannot_be_changed():
    with pytest.raises(ValueError, match="frozen"):
        Config(env="Hopper-v4").steps = 3
