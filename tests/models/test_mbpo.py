"""MBPO's parts: the model on literals and known dynamics, its rollouts, and the tasks' ends."""

import math
from functools import partial

import numpy as np
import pytest
import torch

from pessimism.config.resolve import merge, preset_values, validated
from pessimism.config.tasks import task_name
from pessimism.envs import make as making
from pessimism.errors import UserError
from pessimism.models.dynamics import DECAYS, DynamicsEnsemble
from pessimism.models.fitting import BestWeights, fit
from pessimism.models.rollouts import ModelReplay, RolloutPlan
from pessimism.models.termination import TERMINATIONS, never
from pessimism.replay.transitions import TransitionReplay
from pessimism.training.run import assemble
from pessimism.types import Transition

FIVE = ["Hopper-v4", "Walker2d-v4", "HalfCheetah-v4", "Ant-v4", "Humanoid-v4"]


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def model(**sizes):
    torch.manual_seed(0)
    return DynamicsEnsemble(2, 1, **{"members": 3, "elites": 2, "hidden": 16, **sizes})


def test_loss_on_literals():
    """With all weights zero the mean is 0 and the log-variance softly bounded around 0."""
    ensemble = model(members=2)
    with torch.no_grad():
        for weight in ensemble.weights:
            weight.zero_()
    softplus = torch.nn.functional.softplus
    upper = 0.5 - softplus(torch.tensor(0.5)).item()
    log_var = -10 + math.log1p(math.exp(upper + 10))
    inputs, targets = torch.zeros(2, 4, 3), torch.full((2, 4, 3), 2.0)
    expected = 2 * (4 * math.exp(-log_var) + log_var) + 0.01 * (3 * 0.5 + 3 * 10)
    assert ensemble.loss(inputs, targets).item() == pytest.approx(expected, rel=1e-5)


def test_decay_weighs_each_layer():
    ensemble = model()
    with torch.no_grad():
        for parameter in ensemble.parameters():
            parameter.zero_()
        before = ensemble.loss(torch.zeros(3, 1, 3), torch.zeros(3, 1, 3))
        for depth, rate in enumerate(DECAYS):  # biases are zero, so that nothing reaches the output
            ensemble.weights[depth].fill_(1.0)
            added = ensemble.loss(torch.zeros(3, 1, 3), torch.zeros(3, 1, 3)) - before
            assert added.item() == pytest.approx(0.5 * rate * ensemble.weights[depth].numel(), rel=1e-2)
            ensemble.weights[depth].zero_()


def test_variance_bounds_hold_and_are_learned():
    ensemble = model()
    mean, log_var = ensemble(1e4 * torch.randn(3, 50, 3, generator=generator()))
    assert mean.shape == log_var.shape == (3, 50, 3)
    assert log_var.max() <= 0.5 + 1e-4
    assert log_var.min() >= -10 - 1e-4
    gradients = torch.autograd.grad(ensemble.loss(torch.zeros(3, 5, 3), torch.ones(3, 5, 3)), ensemble.parameters())
    assert len(gradients) == 12
    assert all(gradient.any() for gradient in gradients[-2:])  # both bounds


def known_dynamics(count, seed=0):
    """A linear system: reward x0, next x = x + 0.1 (x1, a)."""
    states = torch.randn(count, 2, generator=generator(seed))
    action = 2 * torch.rand(count, 1, generator=generator(seed + 1)) - 1
    change = 0.1 * torch.cat((states[:, 1:], action), dim=-1)
    return torch.cat((states, action), dim=-1), torch.cat((states[:, :1], change), dim=-1)


def test_fit_learns_known_dynamics_and_chooses_the_best():
    ensemble = model()
    inputs, targets = known_dynamics(400)
    before = ensemble.errors(inputs, targets)
    metrics = fit(ensemble, inputs, targets, generator(), batch_size=32, patience=2)
    errors = ensemble.errors(*known_dynamics(200, seed=7))
    assert (errors < 0.2 * before).all()
    assert metrics["model/epochs"] > 3
    assert len(set(ensemble.elites.tolist())) == 2
    torch.testing.assert_close(ensemble.input_mean, inputs.mean(0), atol=0.1, rtol=0.1)


def test_constant_inputs_are_not_divided_by_zero():
    ensemble = model()
    ensemble.standardise(torch.tensor([[1.0, 5.0, 0.0], [3.0, 5.0, 0.0]]))
    assert ensemble.input_mean.tolist() == [2.0, 5.0, 0.0]
    assert ensemble.input_std.tolist() == [1.0, 1.0, 1.0]


def test_each_member_goes_back_to_its_own_best_epoch():
    ensemble = model()
    best = BestWeights(ensemble)
    epochs = [[1.0, 1.0, 1.0], [0.5, 2.0, 0.995], [0.6, 0.4, 1.0]]
    for number, errors in enumerate(epochs):
        with torch.no_grad():
            for parameter in ensemble.parameters():
                parameter.fill_(float(number))
        best.record(torch.tensor(errors))
    best.restore()
    assert [ensemble.weights[0][member].mean().item() for member in range(3)] == [1.0, 2.0, 0.0]
    assert best.errors.tolist() == pytest.approx([0.5, 0.4, 1.0])
    assert best.stale == 0
    best.record(torch.tensor([0.5, 0.4, 0.991]))  # by less than 1%
    assert best.stale == 1


@pytest.mark.parametrize("poison", [math.nan, math.inf])
def test_fitting_ends_when_held_out_errors_are_not_finite(poison):
    ensemble = model()
    before = ensemble.weights[0].detach().clone()
    inputs, targets = known_dynamics(100)
    metrics = fit(ensemble, inputs, torch.full_like(targets, poison), generator(), patience=2)
    assert metrics["model/epochs"] == 3
    assert not metrics["model/holdout_error"].isfinite()  # the run stops on it, with a report
    assert torch.equal(ensemble.weights[0], before)  # no epoch was better than none


def test_sampling_deals_every_state_to_one_elite():
    """Member m predicts the constant m without noise: each state's outcome tells whom it met."""
    ensemble = model(members=4, elites=3)
    with torch.no_grad():
        for parameter in ensemble.parameters():
            parameter.zero_()
        ensemble.least.fill_(-40.0)
        ensemble.most.fill_(-40.0)
        ensemble.biases[-1][:, :, :3] = torch.arange(4.0).view(4, 1, 1)
        ensemble.elites.copy_(torch.tensor([3, 0, 2]))
    obs = torch.arange(10.0).view(5, 2).repeat(4, 1)  # 20 states do not divide by 3
    next_obs, reward = ensemble.sample(obs, torch.zeros(20, 1), generator())
    met = reward.round().flatten()
    torch.testing.assert_close(next_obs - obs, met.view(-1, 1).expand(-1, 2), atol=1e-4, rtol=0)
    counts = [int((met == member).sum()) for member in (3, 0, 2)]
    assert sum(counts) == 20
    assert min(counts) >= 6


def test_imagined_outcomes_have_the_predicted_standard_deviation():
    """All weights zero, means 0, log-variances 2 log(std): 4000 outcomes, within four standard errors."""
    ensemble, std, count = model(), torch.tensor([0.1, 0.5, 2.0]), 4000
    with torch.no_grad():
        for parameter in ensemble.parameters():
            parameter.zero_()
        ensemble.least.fill_(-40.0)
        ensemble.most.fill_(40.0)
        ensemble.biases[-1][:, :, 3:] = 2 * std.log()
    next_obs, reward = ensemble.sample(torch.zeros(count, 2), torch.zeros(count, 1), generator())
    found = torch.cat((reward, next_obs), dim=-1).std(dim=0)
    torch.testing.assert_close(found, std, rtol=4 / math.sqrt(2 * count), atol=0)


def test_each_member_learns_from_a_bootstrap_sample_of_its_own(monkeypatch):
    ensemble, (inputs, targets), seen = model(), known_dynamics(60), []
    loss = ensemble.loss
    monkeypatch.setattr(ensemble, "loss", lambda data, wanted: seen.append(data) or loss(data, wanted))
    fit(ensemble, inputs, targets, generator(), batch_size=16, patience=0)
    epoch = torch.cat(seen, dim=1)[:, :48]  # [N, 48, in]: what is not held out, once
    rows = [sorted(member[:, 0].tolist()) for member in epoch]
    assert all(len(set(row)) < 48 for row in rows)  # drawn with replacement
    assert rows[0] != rows[1] != rows[2] != rows[0]


def test_schedule_of_rollout_lengths():
    plan = RolloutPlan(first_step=5001, schedule=(20, 150, 1, 15))
    assert [plan.due(step) for step in (5001, 5002, 5250, 5251)] == [True, False, False, True]
    lengths = {epoch: plan.length(5001 + 1000 * epoch) for epoch in (0, 20, 29, 30, 100, 150, 500)}
    assert lengths == {0: 1, 20: 1, 29: 1, 30: 2, 100: 9, 150: 15, 500: 15}
    assert plan.capacity(5001) == 400_000
    assert RolloutPlan(5001, train_every=1000, retain_epochs=5).capacity(5001) == 500_000


class StillAgent:
    def sample(self, obs, generator):
        return torch.zeros(len(obs), 1), torch.zeros(len(obs), 1)


def model_replay(terminated=never, **plan):
    real = TransitionReplay(100, 2, 1, 0.9, generator())
    for index in range(20):
        state = np.full(2, index, dtype=np.float32)
        real.add(Transition(state, np.zeros(1, dtype=np.float32), 1.0, False, state))
    plan = RolloutPlan(**{"first_step": 1, "rollouts": 30, "schedule": (0, 1, 3, 3), **plan})
    patient = partial(fit, batch_size=8, patience=0)
    return ModelReplay(real, model(), terminated=terminated, plan=plan, fit=patient, real_ratio=0.3)


def test_rollouts_branch_from_real_states_and_drop_what_ended():
    def ends_when_high(obs):
        return obs[:, 0] > 9.5

    replay = model_replay(ends_when_high)
    metrics = replay.refresh(1, StillAgent())
    assert metrics["model/rollout_length"] == 3
    rows = replay.pool.newest(len(replay.pool))
    obs, _, _, discount, next_obs = rows.split(replay.real.widths, dim=-1)
    assert torch.equal(obs[:30], obs[:30].round())  # first steps start at real states
    over = ends_when_high(next_obs)
    assert over[:30].any()
    assert torch.equal(discount.flatten(), torch.where(over, 0.0, 0.9))
    going_on = next_obs[:30][~over[:30]]
    assert torch.equal(obs[30 : 30 + len(going_on)], going_on)


def test_batches_mix_real_and_imagined():
    replay = model_replay()
    replay.refresh(1, StillAgent())
    with torch.no_grad():
        replay.pool.rows[:, 0] = -1.0
    batch = replay.sample(4, 10)
    assert batch.obs.shape == (4, 10, 2)
    assert (batch.obs[:, :3, 0] >= 0).all()
    assert (batch.obs[:, 3:, 0] == -1).all()
    replay.real_ratio = 0.0
    assert (replay.sample(4, 10).obs[..., 0] == -1).all()


def test_pool_keeps_the_newest_when_it_grows_or_turns_over():
    replay = model_replay(epoch_steps=4, train_every=2, schedule=(0, 1, 1, 2))
    replay.refresh(1, StillAgent())
    first = replay.pool.newest(30)
    assert (replay.pool.capacity, len(replay.pool)) == (60, 30)
    assert replay.refresh(2, StillAgent()) == {}
    replay.refresh(5, StillAgent())  # epoch 1: rollouts of 2 steps
    assert (replay.pool.capacity, len(replay.pool)) == (120, 90)
    assert torch.equal(replay.pool.newest(90)[:30], first)
    row = 4 * (2 + 1 + 1 + 1 + 2)
    assert [replay.state_bytes(steps) for steps in (4, 5, 1000)] == [60 * row, 120 * row, 120 * row]


def test_state_restores_model_and_pool_in_place():
    first, second = model_replay(), model_replay()
    for step in (1, 251, 501, 751, 1001):  # more than the pool holds
        first.refresh(step, StillAgent())
    second.load_state_dict(first.state_dict())
    assert torch.equal(first.pool.rows, second.pool.rows)
    second.generator.set_state(first.generator.get_state())
    for replay in (first, second):
        replay.refresh(1251, StillAgent())
    for name, tensor in first.state_dict().items():
        assert torch.equal(second.state_dict()[name], tensor), name


@pytest.mark.parametrize("env_id", [*FIVE, "InvertedPendulum-v4"])
def test_termination_functions_are_the_environments_own(env_id):
    env = making.make(env_id)
    terminated, ends = TERMINATIONS[task_name(env_id)], []
    noise = np.random.default_rng(0)
    env.reset(0)
    for seed in range(1, 250):
        step = env.step(noise.uniform(-1, 1, env.action_size).astype(np.float32))
        assert bool(terminated(torch.from_numpy(step.obs)[None])) == step.terminated
        ends.append(step.terminated)
        if step.terminated or step.truncated:
            env.reset(seed)
    assert any(ends) == (task_name(env_id) != "HalfCheetah")


def test_ends_on_literals():
    def end(task, *values, size=8):
        return bool(TERMINATIONS[task](torch.tensor([[*values, *[0.0] * (size - len(values))]])))

    assert [end("Ant", z) for z in (0.19, 0.2, 1.0, 1.01)] == [True, False, False, True]
    assert end("Ant", 0.5, math.nan)
    assert [end("Humanoid", z) for z in (1.0, 1.01, 1.99, 2.0)] == [True, False, False, True]
    assert [end("Walker2d", z, angle) for z, angle in ((0.8, 0), (1, -1), (1, 0.99), (2.0, 0))] == [
        True,
        True,
        False,
        True,
    ]
    assert [end("Hopper", 1.0, 0.0, speed) for speed in (-101.0, 99.0, 101.0)] == [True, False, True]
    assert end("Hopper", math.nan)


@pytest.mark.parametrize(("env_id", "size"), [("Ant-v4", 27), ("Humanoid-v4", 45)])
def test_observations_full_and_truncated(env_id, size):
    full, truncated = making.make(env_id), making.make(env_id, entries=size)
    assert truncated.obs_size == size
    obs = full.reset(3)
    np.testing.assert_array_equal(truncated.reset(3), obs[:size])
    positions, velocities = full.env.unwrapped.data.qpos, full.env.unwrapped.data.qvel
    np.testing.assert_allclose(obs[:size], np.concatenate((positions[2:], velocities)), rtol=1e-5, atol=1e-6)


def mbpo_config(env, **changes):
    return validated(merge(preset_values("mbpo", env), {"env": env, "compile": False, **changes}))


def test_settings_by_task():
    table = {env: mbpo_config(env) for env in FIVE}
    assert [config.updates_per_step for config in table.values()] == [20, 20, 40, 20, 20]
    assert {config.policy_every for config in table.values()} == {1}
    assert [config.model.schedule[1:] for config in table.values()] == [
        (150, 1, 15), (150, 1, 1), (150, 1, 1), (100, 1, 25), (300, 1, 25)
    ]  # fmt: skip
    assert [config.observation for config in table.values()] == ["full"] * 3 + ["truncated"] * 2
    humanoid = table["Humanoid-v4"].model
    assert (humanoid.train_every, humanoid.retain_epochs, humanoid.hidden) == (1000, 5, 400)
    assert mbpo_config("Ant-v4", observation="full").observation == "full"
    assert int(256 * table["Ant-v4"].model.real_ratio) == 12


def test_a_task_without_a_termination_function_is_refused():
    with pytest.raises(UserError, match=r"^MBPO has no termination function for Pendulum, only for Hopper, "):
        assemble(mbpo_config("Pendulum-v1"))


def test_a_task_without_truncated_observations_is_refused():
    with pytest.raises(UserError, match=r"^Hopper-v4 has no truncated observation, only Ant and Humanoid have"):
        assemble(mbpo_config("Hopper-v4", observation="truncated"))
