"""Draw the pictures of docs/concepts.md: what W and beta do, why choosing over-estimates, which signal shows it.

reading.png   how a strategy reads the estimates of five critics
choosing.png  the bias of the best of ten estimates, by beta and by how much the critics err together
signals.png   critics that learn the value of one state, under three rules for beta

In all of them the true values are 0, so that an estimate is its own bias.
"""

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import matplotlib as mpl
import torch
from torch import Tensor

from pessimism.strategies import CalibratedPenalty, FixedPenalty, LearnedPenalty
from pessimism.tools.script import Parser, start
from pessimism.training.bias import soft_returns
from pessimism.types import Episode, Hindsight
from pessimism.values import average, lowest, pairwise_distance, td_error

mpl.use("Agg")
from matplotlib import pyplot

CRITICS, ACTIONS, DISCOUNT, TAU, RATE = 5, 10, 0.9, 0.05, 0.1
EPISODE, BETWEEN = 60, 20  # steps of a measured episode, and between two of them
INK, BLUE, RED, GREY, GREEN = "#222222", "#1f5fa8", "#b5382a", "#9a9a9a", "#2f7d4f"


def draw_reading(path: Path) -> None:
    """Draw estimates of growing disagreement, and how they are read."""
    generator = torch.Generator().manual_seed(3)
    values = torch.randn(CRITICS, 6, 1, generator=generator)  # [N, B, 1]
    values = values - values.mean(dim=0)  # all means on one line: only the disagreement differs
    values = values / pairwise_distance(values) * torch.linspace(0.1, 1.6, 6)[:, None]
    figure, axis = pyplot.subplots(figsize=(7, 3.4), layout="constrained")
    place = torch.arange(6)
    axis.plot(place.expand(CRITICS, 6).T, values[..., 0].T, "o", color=GREY, ms=4)
    readings = {
        "mean (beta = 0)": (average(values), INK),
        "mean - 0.5 W": (FixedPenalty(0.5).target_value(values).detach(), BLUE),
        "mean - W": (FixedPenalty(1.0).target_value(values).detach(), RED),
        "the lowest critic": (lowest(values), GREEN),
    }
    for label, (read, colour) in readings.items():
        axis.plot(place, read[:, 0], "_-", color=colour, ms=14, mew=2, lw=0.8, label=label)
    distances = pairwise_distance(values)[:, 0].tolist()
    axis.set_xticks(place, [f"W = {distance:.1f}" for distance in distances])
    axis.set(xlabel="six states; grey: the estimates of five critics", ylabel="value, relative to the mean")
    _finish(figure, axis, "The more the critics disagree, the more is subtracted", path)


def chosen_bias(beta: float, shared: float, samples: int = 4000) -> float:
    """Return the bias of the value of the best action, all of which are worth 0."""
    generator = torch.Generator().manual_seed(0)
    own = torch.randn(CRITICS, samples * ACTIONS, 1, generator=generator)
    common = torch.randn(1, samples * ACTIONS, 1, generator=generator)
    values = (1 - shared) ** 0.5 * own + shared**0.5 * common  # variance 1, of which a share is common
    read = FixedPenalty(beta).target_value(values).detach().view(samples, ACTIONS)
    return float(read.max(dim=1).values.mean())


def draw_choosing(path: Path) -> None:
    """Draw the bias over beta."""
    figure, axis = pyplot.subplots(figsize=(7, 3.4), layout="constrained")
    betas = [index / 10 for index in range(21)]
    for shared, colour in ((0.0, BLUE), (0.5, INK), (1.0, RED)):
        axis.plot(betas, [chosen_bias(beta, shared) for beta in betas], color=colour, label=f"{shared:.0%}")
    axis.axhline(0, color=GREY, lw=0.8)
    axis.set(xlabel="beta", ylabel="bias of the chosen action's value")
    axis.legend(title="error that all critics share", frameon=False, fontsize=8)
    _finish(figure, axis, "Which beta removes the bias depends on the errors; none removes shared ones", path)


class Trace(NamedTuple):
    """What a simulation shows, step by step."""

    beta: list[float]
    bias: list[float]
    td_error: list[float]


def simulate(strategy: FixedPenalty, steps: int, seed: int = 0) -> Trace:
    """Learn the value of one state with ten actions, whose rewards are noise around 0, by TD-learning."""
    generator = torch.Generator().manual_seed(seed)
    values, trace = torch.zeros(CRITICS, ACTIONS, 1), Trace([], [], [])
    slow = values.clone()  # the target critics
    for step in range(1, steps + 1):
        best = int(strategy.actor_value(values).detach().argmax())
        reward = torch.randn(ACTIONS, 1, generator=generator)
        target = reward + DISCOUNT * strategy.target_value(slow[:, [best]])  # [A, 1]
        strategy.update(values, target)
        trace.beta.append(strategy.beta.item())
        trace.bias.append(float(values[:, best].mean()))
        trace.td_error.append(float(td_error(values, target.detach()).mean()))
        seen = torch.rand(values.shape, generator=generator) < 0.5  # each critic sees half of the rewards
        values = values + RATE * seen * (target.detach() - values)
        slow = slow.lerp(values, TAU)
        if step % BETWEEN == 0:
            strategy.episode_finished(*_episode(values[:, [best]], generator))
    return trace


def _episode(values: Tensor, generator: torch.Generator) -> tuple[Episode, Hindsight]:
    """Return an episode of noise, and what the critics predicted for it: values [N, 1, 1]."""
    nothing, reward = torch.zeros(EPISODE, 0), torch.randn(EPISODE, generator=generator, dtype=torch.float64)
    episode = Episode(nothing, nothing, torch.zeros(EPISODE), reward, torch.zeros(0), terminated=False)
    returns = soft_returns(episode, alpha=0.0, discount=DISCOUNT, tail_value=0.0)
    counted = torch.arange(EPISODE) < EPISODE - 44  # DISCOUNT**44 is 0.01
    return episode, Hindsight(values.expand(-1, EPISODE, -1), returns, counted)


RULES: dict[str, tuple[Callable[[], FixedPenalty], str]] = {
    "fixed beta 0.5": (lambda: FixedPenalty(0.5), INK),
    "dual TD-learning": (lambda: LearnedPenalty(0.5, lr=1e-2), RED),
    "measured bias (calibrated)": (
        lambda: CalibratedPenalty(0.5, discount=DISCOUNT, follow_rate=TAU * (1 - DISCOUNT)),
        BLUE,
    ),
}


def draw_signals(path: Path, steps: int) -> None:
    """Draw beta, the bias and the mean TD error under each rule."""
    figure, axes = pyplot.subplots(1, 3, figsize=(10, 3.2), layout="constrained")
    for label, (strategy, colour) in RULES.items():
        trace = simulate(strategy(), steps)
        for axis, series in zip(axes, trace, strict=True):
            smooth = torch.tensor(series).unfold(0, min(100, steps), 1).mean(dim=1)
            axis.plot(range(steps - len(smooth), steps), smooth, color=colour, lw=1.2, label=label)
    titles = ("beta", "bias of the predictions", "mean TD error, on the bias's scale")
    for axis, title in zip(axes, titles, strict=True):
        axis.set(title=title, xlabel="updates")
        axis.title.set_fontsize(10)
        axis.axhline(0, color=GREY, lw=0.8)
        axis.spines[["top", "right"]].set_visible(False)
    axes[2].set_ylim(axes[1].get_ylim())
    axes[0].legend(frameon=False, fontsize=8)
    figure.savefig(path, dpi=110)


def _finish(figure: pyplot.Figure, axis: pyplot.Axes, title: str, path: Path) -> None:
    axis.set_title(title, color=INK, fontsize=10)
    axis.spines[["top", "right"]].set_visible(False)
    if not axis.get_legend():
        axis.legend(fontsize=8, frameon=False)
    figure.savefig(path, dpi=110)


def main() -> None:
    """Draw."""
    parser = Parser(__doc__)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent, help="where the pictures go")
    parser.add_argument("--updates", type=int, default=4000, help="of the critics in signals.png")
    asked = parser.parse_args()
    draw_reading(asked.out / "reading.png")
    draw_choosing(asked.out / "choosing.png")
    draw_signals(asked.out / "signals.png", asked.updates)


if __name__ == "__main__":
    start(main)
