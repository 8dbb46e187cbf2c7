"""Arithmetic on an ensemble's estimates, `values[N critics, B batch, K atoms]`.

A critic that predicts a mean has K = 1: the one atom is a Dirac delta at its estimate, and the
Wasserstein distance of two of them is the distance of their locations.
"""

import torch
from torch import Tensor


def squared_td_loss(values: Tensor, target: Tensor) -> Tensor:
    """Return half the squared TD error, summed over critics and averaged over the batch.

    values [N, B, 1], target [B, 1] -> scalar. The same target serves all critics (Algorithm 1).
    """
    return 0.5 * (values - target).square().mean(dim=1).sum()


def pairwise_distance(values: Tensor) -> Tensor:
    """Return the mean Wasserstein-1 distance over all pairs of critics: [N, B, K] -> [B, 1] (Eqn. 6).

    W1 of two sets of K equally likely atoms is the mean distance of their sorted atoms, and at each
    atom the sum over pairs needs no N x N table: with the members in ascending order x_(1..N),

        sum_{i<j} |x_i - x_j| = sum_i (2i - N - 1) x_(i).
    """
    members = len(values)
    atoms = values.sort(dim=-1).values if values.shape[-1] > 1 else values
    ordered = atoms.sort(dim=0).values  # [N, B, K]
    rank = torch.arange(1, members + 1, device=values.device, dtype=values.dtype)
    weight = (2 * rank - members - 1) * (2 / (members * (members - 1)))  # [N]
    return (weight.view(-1, 1, 1) * ordered).sum(dim=0).mean(dim=-1, keepdim=True)


def lowest(values: Tensor) -> Tensor:
    """Return the estimate of the critic with the lowest mean, its atoms kept whole: [N, B, K] -> [B, K]."""
    index = values.mean(dim=-1, keepdim=True).argmin(dim=0, keepdim=True)  # [1, B, 1]
    return values.gather(0, index.expand(1, *values.shape[1:])).squeeze(0)
