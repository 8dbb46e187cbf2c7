"""Policies: observation to action."""

import itertools
import math
from typing import Literal

from torch import Tensor, nn

LogStdForm = Literal["squashed", "clamped"]
SQUASHED = (-10.0, 2.0)  # author's code
CLAMPED = (-20.0, 2.0)  # SAC's, REDQ's and MBPO's


class SquashedGaussianActor(nn.Module):
    """A Gaussian squashed by tanh into (-1, 1), with a state-dependent diagonal standard deviation."""

    def __init__(
        self, obs_size: int, action_size: int, hidden: int = 256, log_std: LogStdForm = "squashed"
    ) -> None:
        super().__init__()
        self.action_size, self.log_std = action_size, log_std
        sizes = (obs_size, hidden, hidden, 2 * action_size)
        layers = [nn.Linear(inputs, outputs) for inputs, outputs in itertools.pairwise(sizes)]
        for layer, gain in zip(layers, (1.0, 1.0, 0.01), strict=True):
            nn.init.orthogonal_(layer.weight, gain * math.sqrt(2))  # author's code
            nn.init.zeros_(layer.bias)
        self.net = nn.Sequential(layers[0], nn.ReLU(), layers[1], nn.ReLU(), layers[2])

    def xavier_(self) -> None:
        """Draw the weights anew as SAC, REDQ and MBPO do: Xavier uniform, the last layer's two heads apart."""
        layers = [layer for layer in self.net if isinstance(layer, nn.Linear)]
        for layer, heads in zip(layers, (1, 1, 2), strict=True):
            for head in layer.weight.chunk(heads):
                nn.init.xavier_uniform_(head)

    def forward(self, obs: Tensor) -> tuple[Tensor, Tensor]:
        """Return mean and log standard deviation before the squashing: [.., obs] -> 2 x [.., act]."""
        mean, raw = self.net(obs).chunk(2, dim=-1)
        if self.log_std == "clamped":
            return mean, raw.clamp(*CLAMPED)
        low, high = SQUASHED
        return mean, low + 0.5 * (high - low) * (raw.tanh() + 1)

    def mode(self, obs: Tensor) -> Tensor:
        """Return the deterministic action."""
        return self(obs)[0].tanh()

    def sample(self, obs: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
        """Return the action that standard normal `noise` [.., act] leads to, and its log-probability."""
        mean, log_std = self(obs)
        raw = mean + log_std.exp() * noise
        gaussian = -0.5 * noise.square() - log_std - 0.5 * math.log(2 * math.pi)
        # log(1 - tanh(x)**2) from x itself: the textbook form loses every digit near the bounds.
        squash = 2 * (math.log(2) - raw - nn.functional.softplus(-2 * raw))
        return raw.tanh(), (gaussian - squash).sum(-1, keepdim=True)
