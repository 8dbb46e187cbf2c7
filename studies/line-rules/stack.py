"""Many seeds of one agent on `Line`, side by side in one stack of networks.

Networks this small cost more in calls than in arithmetic, so the seeds share the calls: each is a slice of stacked
weights with its own environment, replay, random numbers and strategy. Nothing crosses from one slice to another, as
losses are sums over slices and Adam works element by element. The strategies are the library's own objects.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from pessimism.envs.toys import Line, LineValues
from pessimism.nn.actor import SquashedGaussianActor
from pessimism.nn.critic import plain_critic
from pessimism.nn.ensemble import EnsembleLinear
from pessimism.nn.optim import Adam, polyak_
from pessimism.replay.transitions import draw, draw_held_out
from pessimism.strategies import FixedPenalty, Pessimism, SubsetMinimum
from pessimism.training.bias import TrainingBias, look_back
from pessimism.types import Episode, Hindsight
from pessimism.values import average, lowest, pairwise_distance, squared_td_loss


@dataclass(frozen=True)
class Setup:
    """The agent and its environment."""

    reward_noise: float
    seeds: int = 20
    members: int = 4
    hidden: int = 32
    actor_hidden: int = 32
    discount: float = 0.95
    tau: float = 0.02
    lr: float = 1e-3
    alpha: float = 0.02
    alpha_lr: float = 1e-4
    updates: int = 5
    batch: int = 32
    capacity: int = 300
    random_steps: int = 200
    length: int = 100
    noise: float = 0.1
    tail: float = 0.05
    held_out_every: int = 0

    @property
    def follow_rate(self) -> float:
        """Inverse of the steps in which critics follow their targets."""
        return self.tau * (1 - self.discount) * self.updates


class StackedActor(SquashedGaussianActor):
    """One policy per seed: [S, B, 1] -> [S, B, 1]."""

    def __init__(self, seeds: int, hidden: int) -> None:
        super().__init__(1, 1, hidden)
        layers = EnsembleLinear(seeds, 1, hidden), EnsembleLinear(seeds, hidden, hidden)
        last = EnsembleLinear(seeds, hidden, 2, gain=0.01 * 2**0.5)
        self.net = nn.Sequential(layers[0], nn.ReLU(), layers[1], nn.ReLU(), last)


class Slice:
    """One seed's agent, as the library sees agents; its weights are views of the stack's."""

    def __init__(self, stack: "Stack", seed: int) -> None:
        setup, self.stack, self.seed = stack.setup, stack, seed
        self.actor = SquashedGaussianActor(1, 1, setup.actor_hidden)
        for one, all_of_them in zip(self.actor.net, stack.actor.net, strict=True):
            if isinstance(one, nn.Linear):
                one.weight.data = all_of_them.weight.data[seed].T
                one.bias.data = all_of_them.bias.data[seed, 0]
        self.critic = plain_critic(2, members=setup.members, hidden=setup.hidden)
        for parameter, source in zip(self.critic.parameters(), stack.critic.parameters(), strict=True):
            parameter.data = source.data.unflatten(0, (setup.members, setup.seeds))[:, seed]

    @property
    def alpha(self) -> Tensor:
        """Weight of the entropy."""
        return self.stack.log_alpha.detach()[self.seed].exp()

    @torch.no_grad()
    def target_action(self, obs: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Return an action and its log-probability."""
        return self.actor.sample(obs, torch.randn(*obs.shape[:-1], 1, generator=generator))

    @torch.no_grad()
    def values(self, obs: Tensor, action: Tensor) -> Tensor:
        """Return the critics' estimates: [N, B, 1]."""
        values: Tensor = self.critic(obs, action)
        return values


@dataclass
class Records:
    """What is seen since the last record, and the records."""

    td: list[Tensor] = field(default_factory=list)  # [S] each
    validation: list[Tensor] = field(default_factory=list)
    rows: list[dict[str, float]] = field(default_factory=list)


class Stack:
    """Learns like SACAgent with the library's loop, all seeds in step."""

    def __init__(self, setup: Setup, strategy: Callable[[int], Pessimism], seed: int = 0) -> None:
        torch.manual_seed(seed)
        self.setup, self.generator = setup, torch.Generator().manual_seed(seed + 1)
        count = setup.seeds
        self.actor = StackedActor(count, setup.actor_hidden)
        self.critic = plain_critic(2, members=setup.members * count, hidden=setup.hidden)
        self.target = plain_critic(2, members=setup.members * count, hidden=setup.hidden)
        self.target.load_state_dict(self.critic.state_dict())
        self.log_alpha = nn.Parameter(torch.full((count,), setup.alpha).log())
        self.critic_optimizer = Adam(self.critic.parameters(), setup.lr)
        self.actor_optimizer = Adam(self.actor.parameters(), setup.lr)
        self.alpha_optimizer = Adam([self.log_alpha], setup.alpha_lr, betas=(0.5, 0.999))
        self.strategies = [strategy(index) for index in range(count)]
        self.slices = [Slice(self, index) for index in range(count)]
        self.bias = [TrainingBias(discount=setup.discount, tail=setup.tail, seed=seed) for _ in range(count)]
        self.rows = torch.zeros(count, setup.capacity, 4)  # state, action, reward, next state
        self.state = self._start()
        self.episode: list[tuple[Tensor, Tensor, Tensor, Tensor]] = []
        self.step, self.records = 0, Records()

    def _start(self) -> Tensor:
        return 2 * torch.rand(self.setup.seeds, generator=self.generator) - 1

    def run(self, steps: int, every: int) -> list[dict[str, float]]:
        """Learn for so many steps and return the records."""
        while self.step < steps:
            self._interact()
            if self.step > self.setup.random_steps:
                self._learn()
            if self.step % self.setup.length == 0:
                self._finish_episodes()
            if self.step % every == 0 and self.step > self.setup.random_steps:
                self._record()
        return self.records.rows

    def _interact(self) -> None:
        setup, generator = self.setup, self.generator
        count = setup.seeds
        with torch.no_grad():
            noise = torch.randn(count, 1, 1, generator=generator)
            action, log_prob = (part.flatten() for part in self.actor.sample(self.state.view(-1, 1, 1), noise))
        if self.step < setup.random_steps:
            action = 2 * torch.rand(count, generator=generator) - 1
        side = 2.0 * torch.randint(2, (count,), generator=generator) - 1
        after = (self.state + 0.2 * action + setup.noise * side).clamp(-1, 1)
        reward = -after.square() + setup.reward_noise * torch.randn(count, generator=generator)
        self.rows[:, self.step % setup.capacity] = torch.stack([self.state, action, reward, after], dim=1)
        self.episode.append((self.state, action, log_prob, reward))
        self.state, self.step = after, self.step + 1

    def _sample(self, *shape: int, held_out: bool = False) -> tuple[Tensor, ...]:
        """Draw transitions of each seed: state, action, reward and next state, each [S, *shape, 1]."""
        setup, count = self.setup, int(torch.tensor(shape).prod())
        valid = range(max(0, self.step - setup.capacity), self.step)
        choose = draw_held_out if held_out else draw
        numbers = choose(valid, setup.seeds * count, self.generator, setup.held_out_every)
        assert numbers is not None
        index = (numbers % setup.capacity).view(setup.seeds, count)
        rows = self.rows.gather(1, index[..., None].expand(-1, -1, 4)).view(setup.seeds, *shape, 4)
        return rows.unsqueeze(-1).unbind(-2)

    def _estimates(self, critic: nn.Module, obs: Tensor, action: Tensor) -> Tensor:
        """Return each seed's critics' estimates: [S, B, 1] twice -> [N, S, B, 1]."""
        members = self.setup.members
        obs, action = (part.expand(members, *part.shape).flatten(0, 1) for part in (obs, action))
        values: Tensor = critic(obs, action)
        return values.unflatten(0, (members, self.setup.seeds))

    def _read(self, values: Tensor, betas: Tensor, masks: Tensor | None = None) -> Tensor:
        """Return what the strategies make of estimates: [N, S, B, 1] -> [S, B, 1]."""
        if masks is not None:
            values = values.masked_fill(masks, float("inf"))
            return lowest(values.flatten(1, 2)).view(values.shape[1:])
        flat = values.flatten(1, 2)
        penalty = pairwise_distance(flat).view(values.shape[1:])
        return average(flat).view(values.shape[1:]) - betas.view(-1, 1, 1) * penalty

    def _betas(self) -> Tensor:
        zero = torch.zeros(())
        return torch.stack(
            [one.beta.detach() if isinstance(one, FixedPenalty) else zero for one in self.strategies]
        )

    def _masks(self) -> Tensor | None:
        if not isinstance(self.strategies[0], SubsetMinimum):
            return None
        for one in self.strategies:
            one.redraw()
        return torch.stack([one.left_out for one in self.strategies if isinstance(one, SubsetMinimum)], dim=1)

    @torch.no_grad()
    def _target(self, reward: Tensor, after: Tensor) -> Tensor:
        """Return the TD targets: [S, B, 1]."""
        noise = torch.randn(reward.shape, generator=self.generator)
        action, log_prob = self.actor.sample(after, noise)
        next_values = self._estimates(self.target, after, action)
        bonus = -self.log_alpha.exp().view(-1, 1, 1) * log_prob
        return reward + self.setup.discount * (self._read(next_values, self._betas(), self._masks()) + bonus)

    def _learn(self) -> None:
        setup = self.setup
        for one in self.strategies:
            one.advance(self.step)
        batches = self._sample(setup.updates, setup.batch)
        for index in range(setup.updates):
            obs, action, reward, after = (part[:, index] for part in batches)
            target = self._target(reward, after)
            values = self._estimates(self.critic, obs, action)
            loss = squared_td_loss(values.flatten(0, 1), target.expand(values.shape).flatten(0, 1))
            self.critic_optimizer.minimise(loss)
            polyak_(self.target, self.critic, setup.tau)
        values = values.detach()
        self.records.td.append((target - values).mean(dim=(0, 2, 3)))
        for seed, one in enumerate(self.strategies):
            one.update(values[:, seed], target[seed])
        if setup.held_out_every:
            self._validate()
        self._update_actor(obs)

    def _validate(self) -> None:
        obs, action, reward, after = self._sample(self.setup.batch, held_out=True)
        with torch.no_grad():
            values = self._estimates(self.critic, obs, action)
        target = self._target(reward, after)
        self.records.validation.append((target - values).mean(dim=(0, 2, 3)))
        for seed, one in enumerate(self.strategies):
            one.validate(values[:, seed], target[seed])

    def _update_actor(self, obs: Tensor) -> None:
        noise = torch.randn(obs.shape, generator=self.generator)
        action, log_prob = self.actor.sample(obs, noise)
        value = self._read(self._estimates(self.critic, obs, action), self._betas())
        alpha = self.log_alpha.detach().exp().view(-1, 1, 1)
        self.actor_optimizer.minimise((alpha * log_prob - value).mean(dim=(1, 2)).sum())
        entropy = -log_prob.detach().mean(dim=(1, 2))
        self.alpha_optimizer.minimise((self.log_alpha * (entropy + 1.0)).sum())  # target entropy -1

    def _finish_episodes(self) -> None:
        fields = [torch.stack(part) for part in zip(*self.episode, strict=True)]  # 4 x [T, S]
        on_policy = self.step - self.setup.length >= self.setup.random_steps
        for seed, one in enumerate(self.strategies):
            obs, action, log_prob, reward = (part[:, seed] for part in fields)
            episode = Episode(
                obs=obs[:, None],
                action=action[:, None],
                log_prob=log_prob.double(),
                reward=reward.double(),
                last_obs=self.state[seed, None],
                terminated=False,
                on_policy=on_policy,
            )
            hindsight = self._look_back(seed, episode) if on_policy else None
            one.episode_finished(episode, hindsight)
        self.episode, self.state = [], self._start()

    def _look_back(self, seed: int, episode: Episode) -> Hindsight:
        setup = self.setup
        hindsight = look_back(
            self.slices[seed], episode, discount=setup.discount, tail=setup.tail, generator=self.generator
        )
        self.bias[seed].recent.add(hindsight)
        return hindsight

    @torch.no_grad()
    def _visited(self, agent: Slice, episodes: int = 10) -> tuple[Tensor, Tensor]:
        """Return states and actions of fresh episodes of one seed's policy: 2 x [B, 1]."""
        setup, pairs = self.setup, []
        state = 2 * torch.rand(episodes, 1, generator=self.generator) - 1
        for _ in range(setup.length):
            action, _ = agent.target_action(state, self.generator)
            pairs.append((state, action))
            side = 2.0 * torch.randint(2, state.shape, generator=self.generator) - 1
            state = (state + 0.2 * action + setup.noise * side).clamp(-1, 1)
        states, actions = zip(*pairs, strict=True)
        return torch.cat(states), torch.cat(actions)

    def _record(self) -> None:
        """Set what each seed's signals say beside the true bias."""
        td, validation = (
            torch.stack(part).mean(0).tolist() if part else [float("nan")] * self.setup.seeds
            for part in (self.records.td, self.records.validation)
        )
        self.records.td, self.records.validation = [], []
        betas = self._betas().tolist()
        line = Line(noise=self.setup.noise, length=self.setup.length)
        for seed, agent in enumerate(self.slices):
            truth = LineValues(line, agent, self.setup.discount)
            visited = self._visited(agent)
            values = agent.values(*visited)
            true_values = truth(*visited)
            self.records.rows.append(
                {
                    "seed": seed,
                    "step": self.step,
                    "beta": betas[seed],
                    "bias": float((values.mean(0).double() - true_values).mean()),
                    "dual_td": td[seed],
                    "validation_td": validation[seed],
                    "training": self.bias[seed].metrics().get("bias/training", float("nan")),
                    "training_se": self.bias[seed].metrics().get("bias/training_se", float("nan")),
                    "disagreement": float(pairwise_distance(values).mean()),
                    "value": float(true_values.mean()),
                }
            )
