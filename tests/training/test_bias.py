"""The bias meter against values that are known, and what a run owes to neither it nor the evaluation."""

import math

import numpy as np
import pytest
import torch

from fakes import UniformAgent
from pessimism.config.resolve import validated
from pessimism.envs.make import make
from pessimism.envs.toys import Constant, Line, LineValues, constant_value, factory
from pessimism.nn.actor import NoisyActor
from pessimism.replay.transitions import TransitionReplay
from pessimism.training.bias import BiasMeter, TrainingBias, measure, soft_returns
from pessimism.training.evaluate import run_episodes
from pessimism.training.loop import Budget, Every, Trainer
from pessimism.training.run import assemble
from pessimism.training.state import stream, stream_seed
from pessimism.types import Episode

GAMMA, ALPHA, WIDTH, OFFSET = 0.9, 0.3, 0.25, 2.5
LOG_PROB = -math.log(2 * WIDTH)


def constant_agent(length, *, offset=OFFSET, alpha=ALPHA):
    """Predict the true soft value of `Constant` plus an offset; `length` inf: it never ends."""

    def value(time):
        left = (length - time) if math.isfinite(length) else torch.full_like(time, math.inf)
        return left.apply_(lambda steps: constant_value(steps, alpha, LOG_PROB, GAMMA)) + offset

    return UniformAgent(value, alpha=alpha, width=WIDTH)


def constant_meter(*, length, terminates, tail=0.01, episodes=2):
    return BiasMeter(
        factory(Constant, length=length, terminates=terminates), episodes, 0, tail=tail, discount=GAMMA
    )


def made_episode(reward, log_prob, terminated=True):
    steps = len(reward)
    return Episode(
        obs=torch.arange(steps, dtype=torch.float32)[:, None],
        action=torch.zeros(steps, 1),
        log_prob=torch.tensor(log_prob, dtype=torch.float64),
        reward=torch.tensor(reward, dtype=torch.float64),
        last_obs=torch.tensor([float(steps)]),
        terminated=terminated,
    )


@pytest.mark.parametrize("name", ["Line", "Constant"])
def test_toys_are_gymnasium_environments(name):
    env = make(f"pessimism.envs.toys:pessimism-toys/{name}-v0", length=2)
    env.reset(seed=0)
    first, second = (env.step(np.zeros(1, dtype=np.float32)) for _ in range(2))
    assert not (first.terminated or first.truncated)
    assert second.terminated or second.truncated


# --- the soft return -----------------------------------------------------------------------------------------


def test_soft_returns_of_three_steps_worked_by_hand():
    # gamma 1/2, alpha 2. G_2 = 3. The value at 2 is 3 - 2 (1) = 1, so G_1 = 2 + 1/2 = 5/2.
    # The value at 1 is 5/2 - 2 (-1/2) = 7/2, so G_0 = 1 + 7/4. The first log-probability (9) counts nowhere.
    episode = made_episode([1.0, 2.0, 3.0], [9.0, -0.5, 1.0])
    assert soft_returns(episode, alpha=2.0, discount=0.5, tail_value=0.0).tolist() == [2.75, 2.5, 3.0]


def test_soft_returns_take_the_tail_value_one_step_after_the_last():
    episode = made_episode([1.0, 2.0, 3.0], [9.0, -0.5, 1.0])
    # A value of 8 after the last step adds 8/2 to G_2, 8/4 to G_1 and 8/8 to G_0.
    assert soft_returns(episode, alpha=2.0, discount=0.5, tail_value=8.0).tolist() == [3.75, 4.5, 7.0]


def test_closed_form_of_the_constant_chain():
    # Three rewards of 1 and two log-probabilities, discounted by 1/2 and 1/4.
    assert constant_value(3, alpha=2.0, log_prob=-1.0, discount=0.5) == 1.75 + 2 * 0.75


# --- terminating episodes: the offset, exactly ---------------------------------------------------------------


@pytest.mark.parametrize("offset", [OFFSET, 0.0, -1.0])
@pytest.mark.parametrize("length", [1, 3, 120])
def test_meter_returns_the_offset_where_episodes_terminate(length, offset):
    bias = constant_meter(length=length, terminates=True)(constant_agent(length, offset=offset), step=0)
    assert bias.mean == pytest.approx(offset, abs=1e-9)  # all in double precision: rounding alone
    assert bias.std == pytest.approx(0.0, abs=1e-9)
    assert bias.states == 2 * length  # no state of a terminated episode is dropped
    assert bias.bootstrapped == 0.0


def test_over_estimation_is_positive():
    predicted = UniformAgent(lambda obs: torch.full_like(obs, 5.0))
    episode = made_episode([1.0], [0.0])
    bias = measure(predicted, [episode], discount=GAMMA, tail=0.01, generator=torch.Generator())
    assert (bias.value, bias.soft_return, bias.mean) == (5.0, 1.0, 4.0)


def test_alpha_is_the_agents_at_the_time_of_the_call():
    agent, meter = constant_agent(3, offset=0.0), constant_meter(length=3, terminates=True)
    assert meter(agent, step=0).mean == pytest.approx(0.0, abs=1e-9)
    agent.alpha.fill_(0.0)  # the predictions still hold the entropy of before, the observations no longer
    entropy = [constant_value(n, ALPHA, LOG_PROB, GAMMA) - constant_value(n, 0, LOG_PROB, GAMMA) for n in (1, 2, 3)]
    assert meter(agent, step=0).mean == pytest.approx(sum(entropy) / 3, abs=1e-9)
    assert sum(entropy) != 0


# --- time limits ---------------------------------------------------------------------------------------------


def test_states_near_a_time_limit_are_dropped():
    # 0.9**43 = 0.0108 > 0.01 >= 0.9**44 = 0.0097: of 60 steps those with fewer than 44 left go, 17 stay.
    assert GAMMA**43 > 0.01 >= GAMMA**44
    agent = constant_agent(math.inf)
    bias = constant_meter(length=60, terminates=False)(agent, step=0)
    assert bias.states == 2 * 17
    assert bias.bootstrapped == 0.0
    unseen = 0.01 * constant_value(math.inf, ALPHA, LOG_PROB, GAMMA)  # `tail` bounds what a kept state cannot see
    assert abs(bias.mean - OFFSET) <= unseen


def test_short_cut_episodes_are_completed_by_the_critics():
    length = 5
    bias = constant_meter(length=length, terminates=False)(constant_agent(math.inf), step=0)
    # The return ends in the critics' estimate, offset included: the state at t shows offset (1 - gamma**(T-t)).
    shown = [OFFSET * (1 - GAMMA ** (length - t)) for t in range(length)]
    assert bias.mean == pytest.approx(sum(shown) / length, abs=1e-9)
    assert bias.states == 2 * length
    assert bias.bootstrapped == 1.0


def test_bootstrapped_is_the_share_of_states():
    agent = constant_agent(math.inf, offset=0.0)
    log_prob = [LOG_PROB] * 44
    episodes = [
        made_episode([1.0] * 44, log_prob, terminated=False),  # keeps its first state
        made_episode([1.0] * 3, log_prob[:3], terminated=False),  # completed, all three
    ]
    bias = measure(agent, episodes, discount=GAMMA, tail=0.01, generator=torch.Generator())
    assert (bias.states, bias.bootstrapped) == (4, 0.75)


# --- REDQ's normalisation ------------------------------------------------------------------------------------


def test_normalised_bias_on_literals():
    agent = UniformAgent(lambda obs: torch.full_like(obs, 3.0))
    episodes = [made_episode([2.0], [0.0]), made_episode([-20.0], [0.0])]
    bias = measure(agent, episodes, discount=GAMMA, tail=0.01, generator=torch.Generator())
    # Errors 1 and 23; divided by max(2, 10) and max(20, 10): 0.1 and 1.15.
    assert bias.mean == 12.0
    assert bias.std == 11.0
    assert bias.normalized_mean == pytest.approx(0.625, abs=1e-12)
    assert bias.normalized_std == pytest.approx(0.525, abs=1e-12)  # of the population, as REDQ's


def test_metrics_have_the_names_of_the_logs():
    bias = constant_meter(length=3, terminates=True)(constant_agent(3), step=0)
    assert bias.metrics()["bias/mean"] == bias.mean
    assert {"bias/normalized_mean", "bias/normalized_std", "bias/bootstrapped"} <= bias.metrics().keys()


# --- a real agent against dynamic programming ----------------------------------------------------------------


def line_settings(**changes):
    return validated(
        {
            "env": "Line",
            "steps": 150,
            "random_steps": 50,
            "updates_per_step": 2,
            "batch_size": 16,
            "hidden": 16,
            "critic": {"form": "residual", "members": 3, "hidden": 16},
            "alpha": 0.2,
            "discount": GAMMA,
            "lr": 3e-3,
            "compile": False,
            "threads": 1,
            "replay_capacity": 1000,
            "evaluation": {"every": 0},
            "bias": {"every": 0},
            **changes,
        }
    )


@pytest.fixture(scope="module")
def trained():
    assembly = assemble(line_settings(), factory(Line, length=20))
    assembly.trainer.run()
    with torch.no_grad():  # so short a training leaves no bias worth measuring: give it one
        assembly.agent.critic.head.bias.add_(1.0)
    return assembly.agent


def test_grid_has_converged(trained):
    obs, action = (2 * torch.rand(2, 500, 1, generator=torch.Generator().manual_seed(0)) - 1).unbind()
    errors = []
    fine = LineValues(Line(), trained, GAMMA, states=801, nodes=321)(obs, action)
    for states in (101, 201):
        coarse = LineValues(Line(), trained, GAMMA, states=states)(obs, action)
        errors.append(float((coarse - fine).abs().max()))
    assert errors[1] < errors[0] / 3  # linear interpolation: half the step, a quarter of the error
    assert errors[1] < 1e-3


@pytest.mark.parametrize("falls", [False, True])
def test_meter_agrees_with_dynamic_programming(trained, falls):
    episodes, length, tail = 64, 120, 1e-3
    make_env = factory(Line, length=length, falls=falls, reward_noise=0.1)
    meter = BiasMeter(make_env, episodes, 1, tail=tail, discount=GAMMA)
    bias = meter(trained, step=7)

    # The meter's own episodes again, for the exact bias of the very pairs that it measured.
    seeds = [stream_seed(1, "bias", 7, index) for index in range(episodes)]
    generator = stream(1, "bias-policy", 7)
    played = run_episodes(meter.envs, seeds, lambda obs: trained.sample(obs, generator))
    exact_value = LineValues(Line(falls=falls), trained, GAMMA, states=401, nodes=641)
    seen = int((GAMMA ** torch.arange(length, 0, -1) <= tail).sum())  # states of a cut episode that count
    exact, shown = [], []
    for episode in played:
        count = len(episode.reward) if episode.terminated else seen
        true = exact_value(episode.obs, episode.action)[:count, 0]
        exact.append(trained.value(episode.obs, episode.action)[:count, 0] - true)
        shown.append(true - soft_returns(episode, float(trained.alpha), GAMMA, 0.0)[:count])
    assert bias.states == sum(map(len, exact))

    # States of an episode share its luck, so that the standard error counts episodes, not states.
    sums = torch.stack([part.sum() for part in shown])
    standard_error = float(sums.std()) * math.sqrt(episodes) / bias.states
    true_bias = float(torch.cat(exact).mean())
    unseen = 0.0 if all(e.terminated for e in played) else tail * float(exact_value.values.abs().max())
    assert abs(bias.mean - true_bias) < 4 * standard_error + unseen + 1e-3  # 1e-3: the grid's error
    assert abs(true_bias) > 3 * (4 * standard_error + unseen + 1e-3)  # or the test could not fail


class ToTheMiddle(NoisyActor):
    """Pushes the point of `Line` to the middle, with noise that targets clip."""

    def mode(self, obs):
        return (-5 * obs).tanh()


class Evaluated:
    """The policy whose values a noisy policy's critics learn, for `LineValues`."""

    def __init__(self, actor):
        self.actor, self.alpha = self, torch.zeros(())
        self.sample = actor.sample_for_update


def test_a_noisy_policy_is_measured_with_the_noise_that_its_critics_learn_about():
    """Exact critics have no bias, although training explores with noise that targets clip."""
    agent = assemble(line_settings(), factory(Line, length=20)).agent
    agent.actor = ToTheMiddle(1, 1, 16, noise=lambda step: 1.0, clip=0.3)
    with torch.no_grad():
        agent.log_alpha.fill_(-math.inf)
    exact = LineValues(Line(noise=0.0), Evaluated(agent.actor), GAMMA, states=401, nodes=641)
    agent.values = lambda obs, action: exact(obs, action)[None]
    meter = BiasMeter(factory(Line, length=120, noise=0.0), 16, 1, tail=1e-3, discount=GAMMA)
    assert abs(meter(agent, step=0).mean) < 0.01
    agent.target_action = agent.sample
    assert meter(agent, step=0).mean > 0.1  # what would be reported of the exploring policy


# --- training does not notice being watched ------------------------------------------------------------------


def test_evaluation_and_bias_meter_leave_training_unchanged():
    def run(**changes):
        assembly = assemble(line_settings(steps=80, **changes), factory(Line, length=20, reward_noise=0.5))
        assembly.trainer.run()
        checkpoint = assembly.trainer.checkpoint()  # weights, optimizers, beta, the random streams
        return checkpoint.tensors | {"replay": assembly.trainer.replay.rows}

    alone = run()
    watched = run(evaluation={"every": 7, "episodes": 2}, bias={"every": 11, "episodes": 3})
    assert alone.keys() == watched.keys()
    for name, tensor in alone.items():
        assert torch.equal(tensor, watched[name]), name
    assert alone["agent.pessimism.step"] == 30  # something was learned


def test_watching_again_gives_the_same_numbers(trained):
    meter = BiasMeter(factory(Line, length=20), 2, 0, tail=0.01, discount=GAMMA)
    assert meter(trained, step=5) == meter(trained, step=5)
    assert meter(trained, step=5) != meter(trained, step=6)


# --- what a time limit leaves in the replay ------------------------------------------------------------------


@pytest.mark.parametrize(("terminates", "last"), [(True, 0.0), (False, GAMMA)])
def test_only_termination_stops_the_bootstrap(terminates, last):
    length, steps, random_steps = 3, 8, 2
    agent, never = constant_agent(length), Every(0)
    replay = TransitionReplay(steps, 1, 1, GAMMA, torch.Generator())
    make_env = factory(Constant, length=length, terminates=terminates)
    budget = Budget(steps, random_steps, 1, 1, never, never, never, never)
    Trainer(agent=agent, replay=replay, env=make_env(), budget=budget, seed=0, generators={}).run()

    obs, _, reward, discount, next_obs = (field[:, 0] for field in replay.rows.split(replay.widths, dim=1))
    assert reward.tolist() == [1.0] * steps
    assert discount.tolist() == pytest.approx([GAMMA, GAMMA, last] * 2 + [GAMMA, GAMMA], rel=1e-7)  # float32
    assert obs.tolist() == [0, 1, 2, 0, 1, 2, 0, 1]
    assert next_obs.tolist() == [1, 2, 3, 1, 2, 3, 1, 2]  # never the first observation of the next episode
    assert agent.updates == list(range(random_steps + 1, steps + 1))


# --- the bias of training episodes ---------------------------------------------------------------------------


def listening(agent, *, length, terminates, random_steps, steps):
    """Train an agent that learns nothing; return the episodes that it was told of, and the trainer."""
    told, never = [], Every(0)
    agent.episode_finished = lambda episode, hindsight: told.append((episode, hindsight)) or {}
    replay = TransitionReplay(steps, 1, 1, GAMMA, torch.Generator())
    budget = Budget(steps, random_steps, 1, 1, never, never, never, never)
    loop = Trainer(
        agent=agent,
        replay=replay,
        env=factory(Constant, length=length, terminates=terminates)(),
        budget=budget,
        seed=0,
        generators={},
        training_bias=TrainingBias(discount=GAMMA, tail=0.01, seed=0),
    )
    loop.run()
    return told, loop


@pytest.mark.parametrize(("length", "terminates"), [(3, True), (60, False)])
def test_training_episodes_show_the_same_bias_as_the_meters(length, terminates):
    agent = constant_agent(length if terminates else math.inf)
    told, loop = listening(agent, length=length, terminates=terminates, random_steps=0, steps=4 * length)
    meter = constant_meter(length=length, terminates=terminates)(agent, step=0)
    shown = loop.training_bias.metrics()
    assert shown["bias/training"] == pytest.approx(meter.mean, abs=1e-9)
    assert shown["bias/training_se"] == pytest.approx(0.0, abs=1e-9)
    episode, hindsight = told[0]
    assert episode.log_prob.tolist() == pytest.approx([LOG_PROB] * length)
    assert episode.obs.flatten().tolist() == list(range(length))
    assert (episode.last_obs.item(), episode.terminated) == (length, terminates)
    assert hindsight.values.shape == (1, length, 1)


def test_episodes_with_random_actions_are_reported_but_not_measured():
    told, loop = listening(constant_agent(3), length=3, terminates=True, random_steps=4, steps=12)
    assert [episode.on_policy for episode, _ in told] == [False, False, True, True]
    assert [hindsight is None for _, hindsight in told] == [True, True, False, False]
    assert [episode.score for episode, _ in told] == [3.0] * 4
    assert loop.training_bias.recent.count == 2


@pytest.mark.parametrize("rule", [{"name": "calibrated", "wait": 0}, {"name": "acc", "start": 0, "every": 10}])
def test_a_restored_run_measures_the_running_episode_as_if_never_interrupted(rule):
    """The checkpoint falls within an episode, whose observations and log-probabilities must come back."""
    settings = line_settings(steps=200, pessimism=rule)
    make_env = factory(Line, length=20, reward_noise=0.5)
    whole = assemble(settings, make_env).trainer
    whole.budget = whole.budget._replace(steps=113)
    whole.run()
    checkpoint = whole.checkpoint()
    assert len(checkpoint.tensors["episode.log_probs"]) == 13
    resumed = assemble(settings, make_env).trainer
    resumed.replay.append_rows(whole.replay.newest(113))
    resumed.restore(checkpoint)
    for trainer in (whole, resumed):
        trainer.budget = trainer.budget._replace(steps=200)
        trainer.run()
    ended, again = whole.checkpoint(), resumed.checkpoint()
    assert ended.tensors["agent.pessimism.beta"] != 0.5
    for name, tensor in ended.tensors.items():
        assert torch.equal(tensor, again.tensors[name]), name
    assert ended.state == again.state
