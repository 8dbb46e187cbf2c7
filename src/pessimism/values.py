"""Arithmetic on an ensemble's estimates, `values[N critics, B batch, K atoms]`.

The K atoms of a critic are equally likely returns, its estimates of the quantiles at the midpoints
(k - 1/2) / K. A critic that predicts a mean has K = 1: the one atom is a Dirac delta at its estimate,
and the Wasserstein distance of two of them is the distance of their locations.
"""

import math

import torch
from torch import Tensor


def squared_td_loss(values: Tensor, target: Tensor, scale: float = 0.5) -> Tensor:
    """Return half the squared TD error, or another share, summed over critics and averaged over the batch.

    values [N, B, 1], target [B, 1] -> scalar. The same target serves all critics (Algorithm 1).
    """
    return scale * (values - target).square().mean(dim=1).sum()


def quantile_huber_loss(values: Tensor, target: Tensor, kappa: float = 1.0) -> Tensor:
    """Return the Huber quantile regression loss (Dabney et al., 2018; App. D.6).

    values [N, B, K], target [B, L] -> scalar. Each error of target atom l and predicted quantile k is
    weighted by |tau_k - 1{error < 0}|. Summed over critics and predicted quantiles, averaged over target
    atoms and the batch: the author's code sums over target atoms too, a factor that Adam cancels.
    """
    atoms = values.shape[-1]
    tau = (torch.arange(atoms, device=values.device, dtype=values.dtype) + 0.5) / atoms  # [K]
    error = target.unsqueeze(-2) - values.unsqueeze(-1)  # [N, B, K, L]
    size = error.abs()
    huber = torch.where(size <= kappa, 0.5 * error.square(), kappa * (size - 0.5 * kappa))
    weight = (tau.unsqueeze(-1) - (error < 0).to(values.dtype)).abs()
    return (weight * huber).mean(dim=(1, 3)).sum()


def sorted_atoms(values: Tensor) -> Tensor:
    """Return each critic's atoms in ascending order, as predicted quantiles may cross: [N, B, K]."""
    return values.sort(dim=-1).values if values.shape[-1] > 1 else values


def average(values: Tensor) -> Tensor:
    """Return the critics' mean return distribution, quantile by quantile: [N, B, K] -> [B, K]."""
    return sorted_atoms(values).mean(dim=0)


def pairwise_distance(values: Tensor) -> Tensor:
    """Return the mean Wasserstein-1 distance over all pairs of critics: [N, B, K] -> [B, 1] (Eqn. 6).

    W1 of two sets of K equally likely atoms is the mean distance of their sorted atoms, and at each
    atom the sum over pairs needs no N x N table: with the members in ascending order x_(1..N),

        sum_{i<j} |x_i - x_j| = sum_i (2i - N - 1) x_(i).
    """
    members = len(values)
    ordered = sorted_atoms(values).sort(dim=0).values  # [N, B, K]
    rank = torch.arange(1, members + 1, device=values.device, dtype=values.dtype)
    weight = (2 * rank - members - 1) * (2 / (members * (members - 1)))  # [N]
    return (weight.view(-1, 1, 1) * ordered).sum(dim=0).mean(dim=-1, keepdim=True)


def pairwise_distance_w2(values: Tensor) -> Tensor:
    """Return the mean Wasserstein-2 distance over all pairs of critics: [N, B, K] -> [B, 1] (App. D.6).

    The norm's gradient is zero where two critics agree, as a subgradient may be.
    """
    atoms = sorted_atoms(values)
    first, second = torch.triu_indices(len(values), len(values), offset=1, device=values.device)
    difference = atoms[first] - atoms[second]  # [pairs, B, K]
    distance = torch.linalg.vector_norm(difference, dim=-1, keepdim=True) / math.sqrt(values.shape[-1])
    return distance.mean(dim=0)


def ensemble_spread(values: Tensor) -> Tensor:
    """Return the standard deviation over critics, atom by atom: [N, B, K] -> [B, K] (App. A.2).

    The measure of OAC and TOP, with the paper's 1/N. Its expected size grows with N where that of the
    pairwise distance stays, so that a beta tuned for one N does not carry over to another.
    """
    atoms = sorted_atoms(values)
    return torch.linalg.vector_norm(atoms - atoms.mean(dim=0), dim=0) / math.sqrt(len(values))


def lowest(values: Tensor) -> Tensor:
    """Return the estimate of the critic with the lowest mean, its atoms kept whole: [N, B, K] -> [B, K]."""
    index = values.mean(dim=-1, keepdim=True).argmin(dim=0, keepdim=True)  # [1, B, 1]
    return values.gather(0, index.expand(1, *values.shape[1:])).squeeze(0)
