"""Every implementation of the update against Algorithm 1 written out by hand (tests/by_hand.py)."""

import math

import pytest
import torch

from by_hand import Algorithm1
from learners import needs_library
from pessimism.agents import critic_learner as learners
from pessimism.config.resolve import merge, preset_values, validated
from pessimism.nn.compilation import compiler
from pessimism.training.build import build_agent
from pessimism.types import Batch

OBS, ACT, BATCH, UPDATES = 5, 2, 8, 3
STEPS = {10_000: 0.2, 20_000: 3.0, 30_000: 1.0, 60_000: 2.0}  # environment step: scale of its states and rewards
RULES = {
    "gpl-sac": "learned",
    "gpl-sac-anneal": "learned",
    "gpl-sac-e2e": "squared-bias",
    "gpl-sac-top": "fixed",
    "sac-20": "fixed",
    "sac": "fixed",
    "mbpo": "fixed",
    "redq": "subset",
}
# Fast learning, so that a step which is left out or turned round is seen after a few updates.
FAST = {"env": "any", "target_entropy": -1.5, "lr": 2e-3, "tau": 0.1, "alpha": 0.7, "alpha_lr": 2e-2, "hidden": 16}
SMALL = FAST | {"actor_clip": 10.0, "critic": {"hidden": 32}}
needs_compiler = pytest.mark.skipif(compiler() is None, reason="needs a C++ compiler")
IMPLEMENTATIONS = [
    "eager",
    pytest.param("native", marks=needs_library),
    pytest.param("compiled", marks=[needs_compiler, pytest.mark.slow]),
]
CLASSES = {
    "eager": learners.CriticLearner,
    "native": learners.NativeLearner,
    "compiled": learners.CompiledLearner,
}


def settings(preset, **changes):
    values = merge(preset_values(preset), SMALL)
    if values["critic"]["members"] > 4:
        values = merge(values, {"critic": {"members": 4}})
    if "lr" in values["pessimism"]:
        values = merge(values, {"pessimism": {"lr": 0.05}})
    return validated(merge(values, changes | {"model": None}))


def build(config, implementation, monkeypatch):
    """Build the agent as a run does; no weight is at a special value, and target critics are not the critics."""
    if implementation == "compiled":
        monkeypatch.setattr(learners, "covered", lambda critic, td_loss: False)
    if implementation == "native":
        monkeypatch.setattr("pessimism.agents.sac.compiled", lambda function, device: function)
    config = config.model_copy(update={"compile": implementation != "eager"})
    agent = build_agent(config, (OBS,), ACT)
    assert type(agent.learner) is CLASSES[implementation]
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for weight in (*agent.critic.parameters(), *agent.target_critic.parameters(), *agent.actor.parameters()):
            weight.add_(0.1 * torch.randn(weight.shape, generator=generator))
    return agent


def batches(scale, seed):
    generator = torch.Generator().manual_seed(seed)

    def normal(width):
        return torch.randn(UPDATES, BATCH, width, generator=generator)

    discount = torch.full((UPDATES, BATCH, 1), 0.97)
    discount[:, 0] = 0.0  # terminated
    obs, next_obs, reward = scale * normal(OBS), scale * normal(OBS), scale * (normal(1) + 0.5)
    return Batch(obs, normal(ACT).tanh(), reward, discount, next_obs)


def draws(agent):
    """Return the noise that the agent's next update will draw."""
    generator = torch.Generator()
    generator.set_state(agent.generator.get_state())
    return [torch.randn(*shape, ACT, generator=generator) for shape in ((UPDATES, BATCH), (BATCH,))]


def subsets(agent):
    """Return the critics that REDQ's next updates will choose."""
    rule, chosen = agent.pessimism, []
    state = rule.generator.get_state()
    for _ in range(UPDATES):
        rule.redraw()
        chosen.append((~rule.left_out).flatten().nonzero().flatten().tolist())
    rule.generator.set_state(state)
    return chosen


def assert_close(ours, by_hand, name):
    torch.testing.assert_close(ours.double(), by_hand, atol=5e-6, rtol=5e-6, msg=lambda text: f"{name}: {text}")


def assert_same_state(agent, reference):
    for part, critics in (("critic", reference.critics), ("target_critic", reference.targets)):
        for name, weight in getattr(agent, part).named_parameters():
            expected = torch.stack([critic[name].detach() for critic in critics])
            assert_close(weight.detach(), expected, f"{part}.{name}")
    for index, weight in enumerate(agent.actor.parameters()):
        assert_close(weight.detach(), reference.policy.weights[index].detach(), f"policy's weight {index}")
    assert_close(agent.alpha, reference.alpha, "alpha")
    if hasattr(agent.pessimism, "beta"):
        assert_close(agent.pessimism.beta.detach(), reference.beta.detach(), "beta")


def follow(agent, reference):
    """Let both learn from the same batches and noise; return the norms of the policy's gradients."""
    norms = []
    for seed, (step, scale) in enumerate(STEPS.items()):
        data, (next_noise, noise) = batches(scale, seed), draws(agent)
        chosen = subsets(agent) if reference.rule == "subset" else ()
        metrics = agent.update(data, step)
        expected = reference.environment_step(data, next_noise, noise, step, chosen)
        assert_same_state(agent, reference)
        for name in metrics.keys() & expected.keys():
            assert_close(metrics[name], expected[name], name)
        obs, action = data.next_obs[0], data.action[0]
        assert_close(agent.value(obs, action), reference.value(obs, action), "value()")
        norms.append(float(reference.gradient_norm))
    assert {
        "train/td_error",
        "train/critic_loss",
        "train/actor_loss",
        "train/alpha",
        "train/value",
    } <= metrics.keys()
    assert ("train/uncertainty" in metrics) == (reference.rule != "subset")
    return norms


@pytest.mark.parametrize("form", ["plain", "residual"])
@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
def test_update_is_algorithm_1(implementation, form, monkeypatch):
    """With annealing, with gradients above and below where they are clipped, with moving target critics."""
    config = settings("gpl-sac-anneal", critic={"form": form})
    agent = build(config, implementation, monkeypatch)
    norms = follow(agent, Algorithm1(agent, "learned", settings=config))
    assert min(norms) < config.actor_clip < max(norms)
    assert abs(float(agent.pessimism.beta.detach()) - 0.5) > 0.01


@pytest.mark.parametrize("preset", RULES)
def test_presets_are_algorithm_1(preset, monkeypatch):
    config = settings(preset)
    agent = build(config, "eager", monkeypatch)
    reference = Algorithm1(agent, RULES[preset], settings=config)
    follow(agent, reference)


@pytest.mark.parametrize("preset", ["redq", "sac-20"])
@pytest.mark.parametrize("implementation", IMPLEMENTATIONS[1:])
def test_fast_implementations_redraw_the_strategy_before_each_update(implementation, preset, monkeypatch):
    config = settings(preset)
    agent = build(config, implementation, monkeypatch)
    follow(agent, Algorithm1(agent, RULES[preset], settings=config))


def test_the_sizes_of_the_presets_are_those_of_their_sources():
    """What the tests above make smaller."""
    gpl, redq = (validated(preset_values(name) | {"env": "any"}) for name in ("gpl-sac", "redq"))
    assert (gpl.critic.members, gpl.critic.form, gpl.updates_per_step, gpl.batch_size) == (10, "residual", 20, 256)
    assert (gpl.lr, gpl.tau, gpl.discount, gpl.alpha, gpl.alpha_lr) == (3e-4, 0.005, 0.99, 1.0, 1e-4)
    assert (gpl.pessimism.name, gpl.pessimism.beta, gpl.pessimism.optimism) == ("learned", 0.5, 0.0)
    assert (redq.critic.members, redq.critic.form, redq.pessimism.subset) == (10, "plain", 2)
    assert math.isclose(gpl.actor_clip, 40.0)
