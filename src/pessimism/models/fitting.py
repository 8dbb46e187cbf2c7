"""Fitting a dynamics ensemble until its error on held-out data stops falling (Janner et al., 2019)."""

import torch
from torch import Tensor

from pessimism.models.dynamics import DynamicsEnsemble
from pessimism.types import Metrics

IMPROVEMENT = 0.01  # relative: what counts as a better epoch


class BestWeights:
    """Each member's weights at its best epoch, and for how many epochs no member has improved."""

    def __init__(self, model: DynamicsEnsemble) -> None:
        self.parameters = [*model.weights, *model.biases]  # leading axis: members
        self.kept = [parameter.detach().clone() for parameter in self.parameters]
        self.errors = torch.full((model.members,), torch.inf, device=self.kept[0].device)
        self.stale = 0

    @torch.no_grad()
    def record(self, errors: Tensor) -> None:
        """Keep the members whose held-out error [N] fell by more than 1% of their best."""
        better = errors < (1 - IMPROVEMENT) * self.errors  # the first best is infinite; NaN is never better
        self.errors = errors.where(better, self.errors)
        for kept, parameter in zip(self.kept, self.parameters, strict=True):
            kept.copy_(parameter.where(better.view(-1, 1, 1), kept))
        self.stale = 0 if better.any() else self.stale + 1

    @torch.no_grad()
    def restore(self) -> None:
        """Set each member back to its best epoch."""
        for kept, parameter in zip(self.kept, self.parameters, strict=True):
            parameter.copy_(kept)


def fit(
    model: DynamicsEnsemble,
    inputs: Tensor,
    targets: Tensor,
    generator: torch.Generator,
    *,
    batch_size: int = 256,
    holdout: float = 0.2,
    holdout_limit: int = 5000,
    patience: int = 5,
) -> Metrics:
    """Fit all members to inputs [n, in] and targets [n, 1 + obs], then choose the elites.

    Each member learns from a bootstrap sample of its own. Fitting ends once no member has improved on the
    held-out data for more than `patience` epochs.
    """
    order = torch.randperm(len(inputs), generator=generator).to(inputs.device)
    held, train = order.split([count := max(1, min(int(holdout * len(order)), holdout_limit)), len(order) - count])
    held_data = inputs[held], targets[held]
    model.standardise(inputs[train])
    bootstrap = torch.randint(len(train), (model.members, len(train)), generator=generator)  # [N, n]
    best, epochs = BestWeights(model), 0
    while best.stale <= patience:
        shuffle = torch.rand(bootstrap.shape, generator=generator).argsort(dim=1)
        rows = train[bootstrap.gather(1, shuffle).to(train.device)]
        for batch in rows.split(batch_size, dim=1):  # [N, B]
            model.optimizer.minimise(model.loss(inputs[batch], targets[batch]))
        best.record(model.errors(*held_data))
        epochs += 1
    best.restore()
    errors = model.errors(*held_data)
    model.elites.copy_(errors.argsort()[: len(model.elites)])
    return {"model/holdout_error": errors[model.elites].mean(), "model/epochs": torch.tensor(float(epochs))}
