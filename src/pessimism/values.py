"""Arithmetic on an ensemble's estimates of the return: N critics, B transitions, K atoms each.

A tensor `values[N, B, K]` holds equally likely atoms: a critic's estimates of the quantiles at the midpoints
(k - 1/2) / K. A critic that predicts a mean has K = 1, a Dirac delta at its estimate. `Atoms` holds atoms with
weights: a categorical critic puts its probabilities on a support that all critics share. Every function here takes
both: strategies, agents and the bias meter work with either kind of critic.
"""

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor


class Atoms(NamedTuple):
    """Atoms with weights. Critics share their locations, which are evenly spaced and ascending."""

    location: Tensor  # [.., B, K]
    log_weight: Tensor  # [.., B, K]: log-probabilities

    @property
    def weight(self) -> Tensor:
        """Probabilities [.., B, K]."""
        return self.log_weight.exp()


Values = Tensor | Atoms
"""Return distributions [N, B, K], or [B, K] for what was made of them."""


def members(values: Values) -> int:
    """Return N."""
    return len(values.log_weight) if isinstance(values, Atoms) else len(values)


def moved(values: Values, move: Callable[[Tensor], Tensor]) -> Values:
    """Return the distributions with their atoms moved and their weights kept."""
    if isinstance(values, Atoms):
        return Atoms(move(values.location), values.log_weight)
    return move(values)


def joined(parts: Sequence[Values]) -> Values:
    """Return the distributions of all parts of a batch: [N, B_i, K] -> [N, sum of B_i, K]."""
    location = torch.cat([one.location if isinstance(one, Atoms) else one for one in parts], dim=1)
    weighted = [one.log_weight for one in parts if isinstance(one, Atoms)]
    return Atoms(location, torch.cat(weighted, dim=1)) if weighted else location


def on_cpu(values: Values) -> Values:
    """Return the distributions in main memory."""
    if isinstance(values, Atoms):
        return Atoms(values.location.cpu(), values.log_weight.cpu())
    return values.cpu()


def detached(values: Values) -> Values:
    """Return the distributions without their graph."""
    if isinstance(values, Atoms):
        return Atoms(values.location.detach(), values.log_weight.detach())
    return values.detach()


def expectation(values: Values) -> Tensor:
    """Return the mean of each distribution: [.., B, K] -> [.., B, 1]."""
    if isinstance(values, Atoms):
        return (values.weight * values.location).sum(dim=-1, keepdim=True)
    return values.mean(dim=-1, keepdim=True)


def td_error(values: Values, target: Values) -> Tensor:
    """Return target minus prediction: [N, B, K] for equally likely atoms, [N, B, 1] of the means for others.

    Weighted predictions cannot leave their support, and a target beyond it counts as one at its end: that is
    what the critics are fitted to (`cross_entropy_loss`).
    """
    if isinstance(values, Atoms):
        low, high = values.location[..., :1], values.location[..., -1:]
        return expectation(moved(target, lambda at: at.clamp(low, high))) - expectation(values)
    assert isinstance(target, Tensor)
    return target - values


def squared_td_loss(values: Values, target: Values, scale: float = 0.5) -> Tensor:
    """Return half the squared TD error, or another share, summed over critics and averaged over the batch.

    values [N, B, 1], target [B, 1] -> scalar. The same target serves all critics (Algorithm 1).
    """
    assert isinstance(values, Tensor) and isinstance(target, Tensor)
    return scale * (values - target).square().mean(dim=1).sum()


def quantile_huber_loss(values: Values, target: Values, kappa: float = 1.0) -> Tensor:
    """Return the Huber quantile regression loss (Dabney et al., 2018; App. D.6).

    values [N, B, K], target [B, L] -> scalar. Each error of target atom l and predicted quantile k is
    weighted by |tau_k - 1{error < 0}|. Summed over critics and predicted quantiles, averaged over target
    atoms and the batch: the author's code sums over target atoms too, a factor that Adam cancels.
    """
    assert isinstance(values, Tensor) and isinstance(target, Tensor)
    atoms = values.shape[-1]
    tau = (torch.arange(atoms, device=values.device, dtype=values.dtype) + 0.5) / atoms  # [K]
    error = target.unsqueeze(-2) - values.unsqueeze(-1)  # [N, B, K, L]
    size = error.abs()
    huber = torch.where(size <= kappa, 0.5 * error.square(), kappa * (size - 0.5 * kappa))
    weight = (tau.unsqueeze(-1) - (error < 0).to(values.dtype)).abs()
    return (weight * huber).mean(dim=(1, 3)).sum()


def cross_entropy_loss(values: Values, target: Values) -> Tensor:
    """Return the cross-entropy of predicted weights and the target's, projected to their support.

    values [N, B, K], target [B, L] -> scalar, summed over critics and averaged over the batch (Bellemare et al.,
    2017, C51; XQC's released code).
    """
    assert isinstance(values, Atoms) and isinstance(target, Atoms)
    weight = projected(target, values.location[0, 0])  # [B, K]
    return -(weight * values.log_weight).sum(dim=-1).mean(dim=1).sum()


def projected(values: Atoms, support: Tensor) -> Tensor:
    """Return the weights of the same distributions on an evenly spaced support: [B, L], [K] -> [B, K].

    An atom's weight is shared by its two neighbours in proportion to its nearness; beyond the ends it
    belongs to the last. Within the ends the mean does not change.
    """
    gap = support[1] - support[0]
    inside = values.location.clamp(support[0], support[-1])
    nearness = (1 - (inside.unsqueeze(-1) - support).abs() / gap).clamp(min=0)  # [B, L, K]
    return (values.weight.unsqueeze(-1) * nearness).sum(dim=1)


def check_axes(values: Values) -> None:
    """Refuse what is not [N critics, B batch, K atoms]: [N, B] would be read as atoms, without an error."""
    shape = tuple((values.log_weight if isinstance(values, Atoms) else values).shape)
    if len(shape) != 3:
        hint = ": a critic that predicts a mean has one atom, values.unsqueeze(-1)" if len(shape) == 2 else ""
        raise ValueError(f"values must be [critics, batch, atoms] and have the shape {shape}{hint}")


def sorted_atoms(values: Tensor) -> Tensor:
    """Return each critic's atoms in ascending order, as predicted quantiles may cross: [N, B, K]."""
    return values.sort(dim=-1).values if values.shape[-1] > 1 else values


def average(values: Values) -> Values:
    """Return the critics' mean return distribution: [N, B, K] -> [B, K].

    Equally likely atoms are averaged quantile by quantile. Weights are averaged atom by atom: the mixture of the
    critics. The mean is the critics' mean in both cases.
    """
    check_axes(values)
    if isinstance(values, Atoms):
        return Atoms(values.location[0], values.log_weight.logsumexp(dim=0) - math.log(members(values)))
    return sorted_atoms(values).mean(dim=0)


def coordinates(values: Values) -> Tensor:
    """Return coordinates in which the Wasserstein-1 distance is the sum of absolute differences: [N, B, K].

    It is the area between two quantile functions, or between two distribution functions F: sorted atoms, each
    over a width of 1 / K, or F at each atom of the support, over the gap to the next one.
    """
    check_axes(values)
    if isinstance(values, Atoms):
        gaps = values.location[..., 1:] - values.location[..., :-1]
        return values.weight[..., :-1].cumsum(dim=-1) * gaps  # F reaches 1 at the last atom
    return values if values.shape[-1] == 1 else sorted_atoms(values) / values.shape[-1]


def rank_weights(count: int) -> list[float]:
    """Return the weights of N members in ascending order in their mean pairwise distance (Eqn. 6).

    The sum over pairs needs no N x N table: with the members x_(1..N) in ascending order

        sum_{i<j} |x_i - x_j| = sum_i (2i - N - 1) x_(i).
    """
    pairs = max(1, count * (count - 1) // 2)
    return [(2 * rank - count - 1) / pairs for rank in range(1, count + 1)]


def pairwise_distance(values: Values) -> Tensor:
    """Return the mean Wasserstein-1 distance over all pairs of critics: [N, B, K] -> [B, 1] (Eqn. 6)."""
    points, count = coordinates(values), members(values)  # [N, B, K], N
    if count == 1:
        return torch.zeros_like(points[0, :, :1])
    if count == 2:  # without the sort
        return (points[0] - points[1]).abs().sum(dim=-1, keepdim=True)
    ordered = points.sort(dim=0).values
    weight = points.new_tensor(rank_weights(count))
    return (weight.view(-1, 1, 1) * ordered).sum(dim=0).sum(dim=-1, keepdim=True)


def pairwise_distance_w2(values: Values) -> Tensor:
    """Return the mean Wasserstein-2 distance over all pairs of critics: [N, B, K] -> [B, 1] (App. D.6).

    For equally likely atoms. The norm's gradient is zero where two critics agree, as a subgradient may be.
    """
    assert isinstance(values, Tensor)
    check_axes(values)
    atoms = sorted_atoms(values)
    first, second = torch.triu_indices(len(values), len(values), offset=1, device=values.device)
    difference = atoms[first] - atoms[second]  # [pairs, B, K]
    distance = torch.linalg.vector_norm(difference, dim=-1, keepdim=True) / math.sqrt(values.shape[-1])
    return distance.mean(dim=0)


def ensemble_spread(values: Values) -> Tensor:
    """Return the standard deviation over critics: [N, B, K] -> [B, K] atom by atom, or [B, 1] of the means.

    The measure of OAC and TOP, with the paper's 1/N (App. A.2); of the means where atoms have weights. Its expected
    size grows with N where that of the pairwise distance stays: a beta tuned for one N does not carry over
    to another.
    """
    check_axes(values)
    atoms = expectation(values) if isinstance(values, Atoms) else sorted_atoms(values)
    return torch.linalg.vector_norm(atoms - atoms.mean(dim=0), dim=0) / math.sqrt(len(atoms))


def lowest(values: Values, left_out: Tensor | None = None) -> Values:
    """Return the estimate of the critic with the lowest mean, its atoms kept whole: [N, B, K] -> [B, K].

    Critics that are `left_out` [N, 1, 1] do not count.
    """
    check_axes(values)
    mean = expectation(values)  # [N, B, 1]
    index = (mean if left_out is None else mean.masked_fill(left_out, math.inf)).argmin(dim=0, keepdim=True)
    if isinstance(values, Atoms):
        return Atoms(values.location[0], _member(values.log_weight, index))
    return _member(values, index)


def _member(values: Tensor, index: Tensor) -> Tensor:
    """Return one critic's numbers for each transition: [N, B, K], [1, B, 1] -> [B, K]."""
    return values.gather(0, index.expand(1, *values.shape[1:])).squeeze(0)
