"""TOP's controller (Moskovitz et al., 2021): a bandit that chooses a beta for each episode."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from pessimism.strategies.penalty import FixedPenalty, no_optimism
from pessimism.types import Episode, Hindsight
from pessimism.values import Values, pairwise_distance

SMALLEST_SCALE = 1e-4  # of feedback and of importance: below it the original divides by zero


class ExponentialWeights(nn.Module):
    """Exponentially weighted arms, learned from how the return changed since the episode before.

    After an episode with arm a, whose return is R, with f the feedback R - R_before and `recent` the last
    few feedbacks, f among them:

        f <- (f - mean(recent)) / std(recent)
        w_a <- decay w_a,   then   w_a <- w_a + lr f / max(exp(w_a), 1e-4).

    The next arm is drawn from softmax(w). The importance factor is exp(w_a), not the probability, and the
    other arms do not decay: both as in TOP's released code. All state is buffers.
    """

    weights: Tensor
    history: Tensor
    episodes: Tensor
    last_return: Tensor
    arm: Tensor

    def __init__(self, arms: int, lr: float = 0.1, decay: float = 0.9, window: int = 5) -> None:
        super().__init__()
        self.lr, self.decay = lr, decay
        self.register_buffer("weights", torch.zeros(arms, dtype=torch.float64))
        self.register_buffer("history", torch.zeros(window, dtype=torch.float64))  # newest last
        self.register_buffer("episodes", torch.zeros((), dtype=torch.int64))
        self.register_buffer("last_return", torch.zeros((), dtype=torch.float64))
        self.register_buffer("arm", torch.zeros((), dtype=torch.int64))  # being played

    def learn(self, episode_return: float) -> None:
        """Take the return of the episode that the current arm was played in."""
        feedback = episode_return - self.last_return
        self.last_return.fill_(episode_return)
        self.episodes.add_(1)
        self.history.copy_(self.history.roll(-1))[-1] = feedback
        recent = self.history[-int(self.episodes) :]
        scaled = (feedback - recent.mean()) / recent.std(correction=0).clamp(min=SMALLEST_SCALE)
        weight = self.decay * self.weights[self.arm]
        self.weights[self.arm] = weight + self.lr * scaled / weight.exp().clamp(min=SMALLEST_SCALE)

    def draw(self, generator: torch.Generator) -> int:
        """Choose the arm of the next episode."""
        probabilities = self.weights.softmax(dim=0).cpu()
        self.arm.copy_(torch.multinomial(probabilities, 1, generator=generator)[0])
        return int(self.arm)


class BanditPenalty(FixedPenalty):
    """GPL-SAC-TOP (App. D.2): mean - beta W, with beta one of the arms, drawn for each episode."""

    def __init__(
        self,
        arms: Sequence[float],
        *,
        lr: float = 0.1,
        decay: float = 0.9,
        window: int = 5,
        optimism: Callable[[int], float] = no_optimism,
        disagreement: Callable[[Values], Tensor] = pairwise_distance,
        actor_share: float = 1.0,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__(optimism=optimism, disagreement=disagreement, actor_share=actor_share, generator=generator)
        self.arms, self.bandit = tuple(arms), ExponentialWeights(len(arms), lr, decay, window)
        self._play()

    def episode_finished(self, episode: Episode, hindsight: Hindsight | None) -> dict[str, Tensor]:
        """Learn from the finished episode's return and draw the beta of the next."""
        played = self.beta.detach().clone()
        self.bandit.learn(episode.score)
        self._play()
        return {"rollout/beta": played}

    def _play(self) -> None:
        self.beta.fill_(self.arms[self.bandit.draw(self.generator)])
