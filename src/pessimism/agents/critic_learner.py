"""TD-learning of the critics (Algorithm 1, the inner loop): in eager torch, as one compiled graph, or in C++.

An agent gives its `CriticLearner` the batches of one environment step and gets back what the steps after the
inner loop need. All implementations give the same numbers up to rounding; `critic_learner` chooses one.
"""

from collections.abc import Callable
from typing import Literal, NamedTuple, TypedDict, Unpack

import torch
from torch import Tensor

from pessimism.native.critic import CriticUpdate, covered
from pessimism.native.graphs import compiled
from pessimism.native.network import PolicyNetwork, is_plain
from pessimism.nn.actor import VectorActor
from pessimism.nn.critic import EnsembleCritic, Pairs
from pessimism.nn.optim import Adam, polyak_
from pessimism.strategies import OrderedSum, Pessimism
from pessimism.types import Batch, Metrics
from pessimism.values import Values, detached, moved, squared_td_loss

TDLoss = Callable[[Values, Values], Tensor]
"""Predictions [N, B, K] and one target for all critics [B, K] -> scalar."""

Drawing = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]
"""Observations [.., obs] and noise [.., act] -> actions [.., act] and their log-probabilities [.., 1]."""


AverageWith = Literal["critic", "policy"]
"""The update that the target critics follow: each of the critics, or the one of the policy after them."""


class CriticStep(NamedTuple):
    """The results of one critic update."""

    loss: Tensor  # scalar
    values: Values  # [N, B, K]: predictions before the optimizer step
    next_values: Values  # [N, B, K]: the target critics' estimates


class Learned(NamedTuple):
    """The last critic update of an environment step, as beta and the policy need it."""

    critic: CriticStep
    batch: Batch  # fields [B, ...], observations as policy and critics see them
    bonus: Tensor  # [B, 1]: the entropy's part of the next state's value, -alpha log pi(a'|s')
    metrics: Metrics


class LearnerOptions(TypedDict, total=False):
    """Settings that the learners of all agents share."""

    td_loss: TDLoss
    tau: float
    lr: float
    average_with: AverageWith


def td_target(pessimism: Pessimism, batch: Batch, next_values: Values, bonus: Tensor) -> Values:
    """Return y = r + gamma (Q_hat(s', a') - alpha log pi(a'|s')): [B, K]."""
    next_value = pessimism.target_value(next_values)  # [B, K]
    return moved(next_value, lambda location: batch.reward + batch.discount * (location + bonus))


class CriticLearner:
    """Updates critics and target critics in eager torch; subclasses do the same faster.

    Critics, target critics and optimizer are created here. The agent registers them as its own modules:
    they are part of its state, under its names.
    """

    def __init__(
        self,
        critic: EnsembleCritic,
        pessimism: Pessimism,
        *,
        td_loss: TDLoss = squared_td_loss,
        tau: float = 0.005,
        lr: float = 3e-4,
        average_with: AverageWith = "critic",
    ) -> None:
        self.critic, self.pessimism, self.td_loss = critic, pessimism, td_loss
        self.tau, self.average_with = tau, average_with
        self.target_critic = critic.averaged()
        self.optimizer = Adam(critic.parameters(), lr)

    def next_actions(self, actor: VectorActor) -> Drawing:
        """Return how the actions of next states are drawn, of which no gradient is needed."""
        return actor.sample_for_update

    def learn(self, batch: Batch, next_action: Tensor, bonus: Tensor) -> Learned:
        """Update on one batch after the other: fields, next actions and entropy bonus [U, B, ...]."""
        for index in range(len(batch.reward)):
            self.pessimism.redraw()
            step = self.update(batch.at(index), next_action[index], bonus[index])
        if self.average_with == "policy":  # which is updated once after these updates
            polyak_(self.target_critic, self.critic, self.tau)
        return Learned(step, batch.at(-1), bonus[-1], {})

    def values(self, obs: Tensor, action: Tensor) -> Values:
        """Return the critics' estimates that the policy ascends: [B, obs], [B, act] -> [N, B, K]."""
        return self.critic.judged(obs, action)

    def update(self, batch: Batch, next_action: Tensor, bonus: Tensor) -> CriticStep:
        """Move all critics towards one target, then the target critics towards the critics: [B, ...]."""
        pairs = Pairs(batch.obs, batch.action, batch.next_obs, next_action)
        with torch.no_grad():
            next_values = self.target_critic.following(pairs)  # [N, B, K]
            target = td_target(self.pessimism, batch, next_values, bonus)  # [B, K]
        values = self.critic.current(pairs)  # [N, B, K]
        loss = self.td_loss(values, target)
        self.optimizer.minimise(loss)
        self.critic.normalise_()
        if self.average_with == "critic":
            polyak_(self.target_critic, self.critic, self.tau)
        return CriticStep(loss.detach(), detached(values), next_values)


class CompiledLearner(CriticLearner):
    """One graph for the whole update, from the target to the averaged weights."""

    def __init__(self, critic: EnsembleCritic, pessimism: Pessimism, **options: Unpack[LearnerOptions]) -> None:
        super().__init__(critic, pessimism, **options)
        self.graph = compiled(super().update, critic.head.weight.device, critic.precision)

    def update(self, batch: Batch, next_action: Tensor, bonus: Tensor) -> CriticStep:
        """Run the graph."""
        return self.graph(batch, next_action, bonus)


class NativeLearner(CriticLearner):
    """The update in C++, for critics that are `covered`. Only the target is computed in torch, by the strategy."""

    def __init__(self, critic: EnsembleCritic, pessimism: Pessimism, **options: Unpack[LearnerOptions]) -> None:
        super().__init__(critic, pessimism, **options)
        tau = self.tau if self.average_with == "critic" else 0.0
        self.native = CriticUpdate(critic, self.target_critic, self.optimizer, tau, self.td_loss)

    def next_actions(self, actor: VectorActor) -> Drawing:
        """Return how the actions of next states are drawn: a network with two hidden layers is evaluated in C++."""
        if not is_plain(actor.net):
            return super().next_actions(actor)
        network = PolicyNetwork(actor.net)
        return lambda obs, noise: actor.action_for_update(network(obs), noise)

    def values(self, obs: Tensor, action: Tensor) -> Tensor:
        """Return the critics' estimates from C++, with a gradient to the action."""
        return self.native.values(torch.cat([obs, action], dim=-1))

    @torch.no_grad()
    def learn(self, batch: Batch, next_action: Tensor, bonus: Tensor) -> Learned:
        """Update on one batch after the other, in one call to C++ if the strategy says its target in full."""
        inputs = torch.cat([batch.obs, batch.action], dim=-1)  # [U, B, obs + act]
        next_inputs = torch.cat([batch.next_obs, next_action], dim=-1)
        orders = self._orders(len(inputs))
        if orders:
            parts = {"rewards": batch.reward, "discounts": batch.discount, "bonuses": bonus}
            step = CriticStep(*self.native.learn_all(inputs, next_inputs, orders, **parts))
        else:
            step = self._learn_one_by_one(batch, inputs, next_inputs, bonus)
        if self.average_with == "policy":
            polyak_(self.target_critic, self.critic, self.tau)
        return Learned(step, batch.at(-1), bonus[-1], {})

    def _orders(self, updates: int) -> list[OrderedSum]:
        """Return how the target critics are read in each update, or nothing where the strategy does not say."""
        estimates = self.native.members * self.native.samples
        if self.native.atoms > 1 or self.pessimism.target_order(estimates) is None:
            return []
        orders = []
        for _ in range(updates):
            self.pessimism.redraw()
            order = self.pessimism.target_order(estimates)
            assert order is not None
            orders.append(order)
        return orders

    def _learn_one_by_one(self, batch: Batch, inputs: Tensor, next_inputs: Tensor, bonus: Tensor) -> CriticStep:
        """Each call to C++ also evaluates the next update's next actions."""
        next_values = self.native.target_values(next_inputs[0])  # [N, B, K]
        for index, following in enumerate((*next_inputs[1:], None)):
            self.pessimism.redraw()
            target = td_target(self.pessimism, batch.at(index), next_values, bonus[index])
            assert isinstance(target, Tensor)  # equally likely atoms: the only ones that are covered
            loss, values, ahead = self.native.learn(inputs[index], target, following)
            step = CriticStep(loss, values, next_values)
            if ahead is not None:
                next_values = ahead
        return step


def critic_learner(
    critic: EnsembleCritic,
    pessimism: Pessimism,
    *,
    compile: bool = False,
    **options: Unpack[LearnerOptions],
) -> CriticLearner:
    """Build the fastest learner for these critics; without `compile` the eager one."""
    if not compile:
        return CriticLearner(critic, pessimism, **options)
    in_cpp = covered(critic, options.get("td_loss", squared_td_loss))
    return (NativeLearner if in_cpp else CompiledLearner)(critic, pessimism, **options)
