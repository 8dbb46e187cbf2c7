"""Draw Appendix A: the expected size of two measures of disagreement over the number of critics."""

import math
from pathlib import Path

import matplotlib as mpl
import torch

from pessimism.tools.script import Parser, start
from pessimism.values import ensemble_spread, pairwise_distance

mpl.use("Agg")
from matplotlib import pyplot

MEMBERS = [2, 3, 4, 5, 7, 10, 15, 20]
SAMPLES = 20_000
INK, BLUE, RED = "#222222", "#1f5fa8", "#b5382a"


def expected_spread(members: int) -> float:
    """Return E[s] / sigma for the population standard deviation of N Gaussian values: chi with N - 1 degrees."""
    return math.sqrt(2 / members) * math.exp(math.lgamma(members / 2) - math.lgamma((members - 1) / 2))


def draw(path: Path) -> None:
    """Draw means with their interquartile ranges, measured with the library's functions, over theory."""
    generator = torch.Generator().manual_seed(0)
    figure, axis = pyplot.subplots(figsize=(6, 3.6), layout="constrained")
    theory = {
        "mean pairwise distance (GPL), theory": ([2 / math.sqrt(math.pi)] * len(MEMBERS), BLUE),
        "standard deviation (OAC, TOP), theory": ([expected_spread(members) for members in MEMBERS], RED),
    }
    for label, (values, colour) in theory.items():
        axis.plot(MEMBERS, values, color=colour, lw=1, label=label)
    for measure, colour in ((pairwise_distance, BLUE), (ensemble_spread, RED)):
        samples = [measure(torch.randn(members, SAMPLES, 1, generator=generator)).flatten() for members in MEMBERS]
        means = [float(one.mean()) for one in samples]
        quartiles = torch.tensor([0.25, 0.75])
        low, high = zip(*(one.quantile(quartiles).tolist() for one in samples), strict=True)
        axis.fill_between(MEMBERS, low, high, color=colour, alpha=0.15, lw=0)
        axis.plot(MEMBERS, means, "o", ms=4, color=colour, label="measured, with quartiles")
    axis.set(xlabel="critics N", ylabel="size, in units of the critics' sigma", xticks=MEMBERS, ylim=(0, 1.7))
    axis.set_title("Only the pairwise distance keeps its size when N changes", color=INK, fontsize=10)
    axis.spines[["top", "right"]].set_visible(False)
    axis.legend(fontsize=7, ncols=2, frameon=False)
    figure.savefig(path, dpi=110)


def main() -> None:
    """Draw."""
    parser = Parser(__doc__)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent, help="where the figure goes")
    draw(parser.parse_args().out / "figure.png")


if __name__ == "__main__":
    start(main)
