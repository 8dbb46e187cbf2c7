"""The published updates of XQC and DroQ, against a hand-written reference in double precision."""

import math

import pytest
import torch
from torch import nn

from learners import needs_library
from pessimism.agents.critic_learner import NativeLearner
from pessimism.config.resolve import merge, preset_values, validated
from pessimism.nn.ensemble import EnsembleBatchNorm, EnsembleDropout
from pessimism.nn.scaling import RewardScale
from pessimism.training.bias import measure
from pessimism.training.build import build_agent, build_budget
from pessimism.training.evaluate import Episode
from pessimism.types import Batch

OBS, ACTION, BATCH = 3, 2, 8


def agent_of(name, **changes):
    values = merge(
        preset_values(name), {"env": "any", "hidden": 6, "critic": {"hidden": 8}, "target_entropy": -1.0}
    )
    values = merge(values, {"compile": False, "batch_size": BATCH})
    return build_agent(validated(merge(values, changes)), (OBS,), ACTION)


def batches(updates, seed=0):
    generator = torch.Generator().manual_seed(seed)

    def draw(*shape):
        return torch.randn(updates, BATCH, *shape, generator=generator)

    discount = torch.full((updates, BATCH, 1), 0.995) * (draw(1) > -1)
    return Batch(draw(OBS), draw(ACTION).tanh(), draw(1), discount, draw(OBS))


def double(module):
    return {name: tensor.detach().clone().double() for name, tensor in module.state_dict().items()}


def normalised(rows, state, name, by_batch):
    mean, var = state[f"{name}.running_mean"], state[f"{name}.running_var"]
    if by_batch:
        mean, var = rows.mean(1, keepdim=True), rows.var(1, correction=0, keepdim=True)
        for key, now in (("running_mean", mean), ("running_var", var)):
            kept = state["momentum"]
            state[f"{name}.{key}"] = (kept * state[f"{name}.{key}"] + (1 - kept) * now).detach()
    return (rows - mean) / (var + 1e-3).sqrt() * state[f"{name}.gain"] + state[f"{name}.bias"]


def xqc_net(rows, state, prefix, by_batch):
    """BN, then four times linear, BN, ReLU, then the head: [N, B, in] -> [N, B, out]."""
    rows = normalised(rows, state, f"{prefix}body.0", by_batch)
    for layer in range(4):
        rows = rows @ state[f"{prefix}body.{3 * layer + 1}.weight"]
        rows = normalised(rows, state, f"{prefix}body.{3 * layer + 2}", by_batch).relu()
    return rows @ state[f"{prefix}head.weight"] + state[f"{prefix}head.bias"]


def squashed(outputs, noise):
    mean, log_std = outputs[0].chunk(2, dim=-1)
    log_std = log_std.clamp(-10, 2)
    raw = mean + log_std.exp() * noise
    log_prob = torch.distributions.Normal(mean, log_std.exp()).log_prob(raw) - (1 - raw.tanh().square()).log()
    return raw.tanh(), log_prob.sum(-1, keepdim=True)


def first_adam_step(state, loss, lr):
    """Adam's first step: the gradient's sign, but for eps."""
    names = [name for name, tensor in state.items() if isinstance(tensor, torch.Tensor) and tensor.requires_grad]
    gradients = torch.autograd.grad(loss, [state[name] for name in names])
    for name, gradient in zip(names, gradients, strict=True):
        state[name] = (state[name] - lr * gradient / (gradient.abs() + 1e-8)).detach()


def unit(state):
    for name in state:
        if name.endswith("weight"):
            state[name] = state[name] / state[name].norm(dim=1, keepdim=True)


def projected(location, weight, support):
    """C51's projection, atom by atom."""
    result, gap = torch.zeros(len(location), len(support), dtype=torch.float64), support[1] - support[0]
    for row in range(len(location)):
        for place, share in zip(location[row], weight[row], strict=True):
            b = float((place.clamp(support[0], support[-1]) - support[0]) / gap)
            down, up = math.floor(b), math.ceil(b)
            result[row, down] += share * (1.0 if down == up else up - b)
            if up != down:
                result[row, up] += share * (b - down)
    return result


def test_xqc_update_is_the_published_one():
    agent = agent_of("xqc")
    for reward in (1.0, -2.0, 4.0):
        agent.observe(reward, ended=False)
    critic, target, actor = double(agent.critic), double(agent.target_critic), double(agent.actor)
    critic["momentum"] = target["momentum"] = 0.99
    actor["momentum"] = 0.99**3
    batch = batches(1)
    noise = torch.Generator()
    noise.set_state(agent.generator.get_state())
    next_noise = torch.randn(1, BATCH, ACTION, generator=noise)[0]
    own_noise = torch.randn(BATCH, ACTION, generator=noise)
    metrics = agent.update(batch, 1)

    returns = [1.0, 0.995 - 2.0, 0.995 * (0.995 - 2.0) + 4.0]
    mean = sum(returns) / 3
    scale = math.sqrt(sum((one - mean) ** 2 for one in returns) / 3)
    lr, alpha = 3e-4 * (1 - 0.9 * 1e-6), 0.01
    obs, action, reward, discount, next_obs = (field[0].double() for field in batch)
    with torch.no_grad():
        next_action, next_log_prob = squashed(xqc_net(next_obs[None], actor, "net.", by_batch=False), next_noise)
    rows = torch.cat([torch.cat([obs, action], 1), torch.cat([next_obs, next_action], 1)]).expand(2, -1, -1)
    support = torch.linspace(-5, 5, 101).double()
    ahead = xqc_net(rows, target, "", by_batch=True)[:, BATCH:].softmax(-1)  # [2, B, 101]
    lower = (ahead * support).sum(-1).argmin(0)
    chosen = torch.stack([ahead[lower[row], row] for row in range(BATCH)])
    location = reward / scale + discount * (support - alpha * next_log_prob)
    labels = projected(location, chosen, support)
    learned = {name for name, _ in agent.critic.named_parameters()}
    for name in learned:
        critic[name].requires_grad_()
    log_probs = xqc_net(rows, critic, "", by_batch=True)[:, :BATCH].log_softmax(-1)
    loss = -(labels * log_probs).sum(-1).mean(1).sum()
    assert metrics["train/critic_loss"].item() == pytest.approx(loss.item(), rel=1e-5)
    first_adam_step(critic, loss, lr)
    unit(critic)

    for name, _ in agent.actor.named_parameters():
        actor[name].requires_grad_()
    new_action, log_prob = squashed(xqc_net(obs[None], actor, "net.", by_batch=True), own_noise)
    judged = torch.cat([obs, new_action], 1).expand(2, -1, -1)
    values = (xqc_net(judged, critic, "", by_batch=False).softmax(-1) * support).sum(-1).min(0).values
    policy_loss = (alpha * log_prob.squeeze(-1) - values).mean()
    assert metrics["train/actor_loss"].item() == pytest.approx(policy_loss.item(), rel=1e-4, abs=1e-5)
    first_adam_step(actor, policy_loss, lr)
    unit(actor)

    for name in learned:
        target[name] = 0.995 * target[name] + 0.005 * critic[name]
    for ours, expected in ((agent.critic, critic), (agent.target_critic, target), (agent.actor, actor)):
        for name, tensor in ours.state_dict().items():
            if name.endswith("body.0.bias"):
                continue  # the next normalisation takes it out: its gradient is 0, and its step rounding's
            close = torch.isclose(tensor.double(), expected[name], atol=2e-6, rtol=1e-4)
            assert close.float().mean() > 0.99, name  # where a gradient is nearly 0, its sign is rounding's


@pytest.mark.parametrize("compile", [False, pytest.param(True, marks=needs_library)], ids=["eager", "C++"])
def test_droq_target_is_the_minimum_and_its_policy_climbs_the_mean_under_fresh_masks(compile):
    agent = agent_of("droq", critic={"dropout": 0.3}, compile=compile)
    assert isinstance(agent.learner, NativeLearner) is compile
    masks = {}
    for key, module in (("online", agent.critic), ("target", agent.target_critic)):
        for index in (1, 5):
            masks[key, index] = EnsembleDropout(0.3)
            masks[key, index].load_state_dict(module.body[index].state_dict())
    state = {"online": double(agent.critic), "target": double(agent.target_critic)}

    def value(key, obs, action):
        rows = torch.cat([obs, action], 1).expand(2, -1, -1)
        for index in (0, 4):
            weights = state[key]
            rows = rows @ weights[f"body.{index}.weight"] + weights[f"body.{index}.bias"]
            rows = rows * masks[key, index + 1](torch.ones(2, BATCH, 8)).double()
            rows = nn.functional.layer_norm(rows, (8,), eps=1e-5)
            rows = (rows * weights[f"body.{index + 2}.gain"] + weights[f"body.{index + 2}.bias"]).relu()
        return rows @ state[key]["head.weight"] + state[key]["head.bias"]

    batch, noise = batches(1), torch.Generator()
    noise.set_state(agent.generator.get_state())
    next_noise = torch.randn(1, BATCH, ACTION, generator=noise)[0]
    own_noise = torch.randn(BATCH, ACTION, generator=noise)
    obs, action, reward, discount, next_obs = (field[0].double() for field in batch)
    with torch.no_grad():
        next_action, next_log_prob = agent.actor.double().sample(next_obs, next_noise.double())
        target = reward + discount * (value("target", next_obs, next_action).min(0).values - next_log_prob)
        loss = (value("online", obs, action) - target).square().mean(1).sum()
        new_action, log_prob = agent.actor.sample(obs, own_noise.double())
    agent.actor.float()
    metrics = agent.update(batch, 1)
    assert metrics["train/critic_loss"].item() == pytest.approx(loss.item(), rel=1e-5)
    state["online"] = double(agent.critic)  # the policy is judged by the updated critics
    policy_loss = (log_prob - value("online", obs, new_action).mean(0)).mean()
    assert metrics["train/actor_loss"].item() == pytest.approx(policy_loss.item(), rel=1e-4)


def test_reward_scale_is_the_deviation_of_the_running_return():
    scale = RewardScale(0.5)
    for reward, ended in ((2.0, False), (1.0, False), (3.0, True), (4.0, False)):
        scale.observe(reward, ended)
    returns = torch.tensor([2.0, 2.0, 3.0, 5.5])  # after an end the return starts with the last reward
    assert scale.unit.item() == pytest.approx(returns.std(correction=0).item(), rel=1e-6)


def test_values_alpha_and_errors_are_in_the_units_of_the_rewards():
    """The same agent, once with all rewards a hundred times as large."""
    small, large = agent_of("gpl-xqc"), agent_of("gpl-xqc")
    for reward in (1.0, -2.0, 4.0, 0.5):
        small.observe(reward, ended=False)
        large.observe(100 * reward, ended=False)
    batch = batches(2)
    one = small.update(batch, 1)
    two = large.update(batch._replace(reward=100 * batch.reward), 1)
    for name in ("train/value", "train/td_error", "train/uncertainty"):
        assert two[name].item() == pytest.approx(100 * one[name].item(), rel=1e-3), name
    assert two["train/critic_loss"].item() == pytest.approx(one["train/critic_loss"].item(), rel=1e-4)
    assert large.alpha.item() == pytest.approx(100 * small.alpha.item(), rel=1e-4)
    obs, action = batch.obs[0], batch.action[0]
    torch.testing.assert_close(large.value(obs, action), 100 * small.value(obs, action), rtol=1e-3, atol=1e-3)
    validated_one, validated_two = (
        small.validate(batch.at(0)),
        large.validate(batch.at(0)._replace(reward=100 * batch.reward[0])),
    )
    name = "bias/validation_td"
    assert validated_two[name].item() == pytest.approx(100 * validated_one[name].item(), rel=1e-3)


def test_the_bias_meter_compares_in_the_units_of_the_rewards():
    agent = agent_of("xqc")
    for reward in (10.0, -20.0, 40.0):
        agent.observe(reward, ended=False)
    nn.init.zeros_(agent.critic.head.weight)
    with torch.no_grad():
        agent.critic.head.bias.zero_()[..., 60] = 50.0  # all weight on the atom at 1
    rewards = torch.tensor([5.0, 7.0], dtype=torch.float64)
    track = (torch.zeros(2, OBS), torch.zeros(2, ACTION), torch.zeros(2), rewards, torch.zeros(OBS), True)
    bias = measure(agent, [Episode(*track)], discount=0.5, tail=0.01, generator=torch.Generator())
    unit_of_reward = agent.reward_scale.unit.item()
    assert bias.value == pytest.approx(unit_of_reward, rel=1e-5)
    assert bias.mean == pytest.approx(unit_of_reward - (5 + 3.5 + 7) / 2, rel=1e-5)


def test_learning_rates_fall_linearly_and_are_a_function_of_the_step():
    agent = agent_of("xqc", lr_steps=100)
    for step, lr in ((1, 2.973e-4), (50, 1.65e-4), (100, 3e-5), (1000, 3e-5)):
        agent.update(batches(1), step)
        for optimizer in (agent.critic_optimizer, agent.actor_optimizer, agent.alpha_optimizer):
            assert optimizer.lr * optimizer.share[0].item() == pytest.approx(lr)
    before = agent.log_alpha.item()
    agent.alpha_optimizer.schedule_(0.0)
    agent._update_actor(torch.randn(BATCH, OBS), torch.randn(BATCH, ACTION))
    assert agent.log_alpha.item() == before


def test_policy_updates_need_not_divide_the_updates_of_a_step():
    budget = build_budget(validated(merge(preset_values("xqc"), {"env": "any", "random_steps": 10})))
    groups = [budget.groups(step) for step in range(11, 17)]
    one, other, both = slice(0, 1), slice(1, 2), slice(0, 2)
    assert groups[:3] == [[(both, False)], [(one, True), (other, False)], [(both, True)]]
    assert groups[3:] == groups[:3]
    usual = build_budget(validated(merge(preset_values("gpl-sac"), {"env": "any"})))
    assert usual.groups(5001) == usual.groups(7777) == [(slice(0, 20), True)]
    mbpo = build_budget(validated(merge(preset_values("mbpo"), {"env": "any", "updates_per_step": 3})))
    assert mbpo.groups(5001) == [(slice(start, start + 1), True) for start in range(3)]
    rare = build_budget(
        validated(merge(preset_values("xqc"), {"env": "any", "random_steps": 3, "update_every": 2}))
    )
    assert [rare.groups(step) for step in (4, 6, 8)] == groups[:3]


def test_without_the_policys_turn_only_critics_learn():
    agent = agent_of("gpl-xqc")
    actor, beta, log_alpha = double(agent.actor), agent.pessimism.beta.item(), agent.log_alpha.item()
    critic = double(agent.critic)
    metrics = agent.update(batches(2), 1, policy=False)
    assert "train/actor_loss" not in metrics and "train/critic_loss" in metrics
    assert all(torch.equal(double(agent.actor)[name], actor[name]) for name in actor)
    assert (agent.pessimism.beta.item(), agent.log_alpha.item()) == (beta, log_alpha)
    assert not torch.equal(double(agent.critic)["head.weight"], critic["head.weight"])


def test_one_critic_under_several_masks_disagrees_with_itself():
    agent = agent_of("gpl-dropout", critic={"dropout": 0.5})
    metrics = agent.update(batches(2), 1)
    assert metrics["train/uncertainty"].item() > 0
    assert agent.values(torch.zeros(4, OBS), torch.zeros(4, ACTION)).shape == (1, 4, 1)


@pytest.mark.parametrize("name", ["gpl-xqc", "gpl-droq", "gpl-dropout"])
def test_acting_evaluating_and_measuring_change_nothing(name):
    agent = agent_of(name)
    agent.update(batches(1), 1)
    before = double(agent)
    obs = torch.randn(4, OBS)
    agent.mode(obs)
    agent.sample(obs, torch.Generator())
    agent.target_action(obs[:1], torch.Generator())
    agent.value(obs[:1], torch.zeros(1, ACTION))
    after = double(agent)
    assert all(torch.equal(after[key], before[key]) for key in before)


def test_running_statistics_and_scale_are_part_of_the_agent():
    one, two = agent_of("gpl-xqc"), agent_of("gpl-xqc", seed=1)
    for reward in (1.0, -2.0, 4.0):
        one.observe(reward, ended=False)
    one.update(batches(2), 1)
    two.load_state_dict(one.state_dict())
    obs, action = torch.randn(4, OBS), torch.zeros(4, ACTION)
    assert torch.equal(one.value(obs, action), two.value(obs, action))
    assert torch.equal(one.mode(obs[:1]), two.mode(obs[:1]))
    kinds = {name.rpartition(".")[2] for name in one.state_dict()}
    assert {"running_mean", "running_var", "running", "count", "mean", "squares"} <= kinds
    norms = [module for module in one.target_critic.modules() if isinstance(module, EnsembleBatchNorm)]
    assert len(norms) == 5 and all(norm.running_mean.abs().sum() > 0 for norm in norms)
