"""Critics and a policy of later work that need fewer members or fewer updates: XQC and DroQ."""

from typing import Self

import torch
from torch import Tensor, nn

from pessimism.nn.actor import LogStdForm, SquashedGaussianActor
from pessimism.nn.critic import EnsembleCritic, Pairs, Support
from pessimism.nn.ensemble import (
    EnsembleBatchNorm,
    EnsembleDropout,
    EnsembleLayerNorm,
    EnsembleLinear,
    UnitHead,
    UnitLinear,
)
from pessimism.values import Values

DEPTH = 4  # hidden layers of XQC's critics and policy


class BatchNormBody(nn.Sequential):
    """BatchNorm, then four times a linear layer, BatchNorm and ReLU (XQC): [N, B, in] -> [N, B, hidden]."""

    def __init__(self, members: int, inputs: int, hidden: int, momentum: float) -> None:
        layers: list[nn.Module] = [EnsembleBatchNorm(members, inputs, momentum)]
        for width in (inputs, *[hidden] * (DEPTH - 1)):
            layers += [UnitLinear(members, width, hidden), EnsembleBatchNorm(members, hidden, momentum), nn.ReLU()]
        super().__init__(*layers)

    def forward(self, inputs: Tensor, *, by_batch: bool = False) -> Tensor:
        """Normalise by the batch's own statistics, which the running ones then follow, or by those."""
        for layer in self:
            inputs = layer(inputs, by_batch=by_batch) if isinstance(layer, EnsembleBatchNorm) else layer(inputs)
        return inputs

    def normalise_(self) -> None:
        """Project the weights back after an optimizer step."""
        for layer in self:
            if isinstance(layer, UnitLinear):
                layer.normalise_()


class XQCCritic(EnsembleCritic):
    """BatchNorm critics with weights of length 1 (Palenicek et al., XQC).

    Online and target critics see the current and the next pairs of an update as one batch: both are
    normalised by the same statistics. The policy is judged by the running statistics.
    """

    body: BatchNormBody

    def __init__(
        self,
        inputs: int,
        *,
        members: int = 2,
        atoms: int = 101,
        hidden: int = 512,
        support: Support | None = (-5.0, 5.0),
        momentum: float = 0.99,
    ) -> None:
        body, head = BatchNormBody(members, inputs, hidden, momentum), UnitHead(members, hidden, atoms)
        super().__init__(body, head, support)
        self.members = members

    def forward(self, obs: Tensor, action: Tensor) -> Values:
        """[B, obs], [B, act] -> [N, B, K], by the running statistics."""
        return self.read(self.head(self.body(self._shared(obs, action))))

    def current(self, pairs: Pairs) -> Values:
        """Return the predictions that TD-learning moves: [N, B, K]."""
        return self.read(self.head(self._jointly(pairs)[:, : len(pairs.obs)]))

    def following(self, pairs: Pairs) -> Values:
        """Return the estimates that its targets are made of: [N, B, K]."""
        return self.read(self.head(self._jointly(pairs)[:, len(pairs.obs) :]))

    def xavier_(self) -> None:
        """Keep the weights: their scale is fixed."""

    def normalise_(self) -> None:
        """Project the weights back after an optimizer step."""
        self.body.normalise_()
        assert isinstance(self.head, UnitHead)
        self.head.normalise_()

    def _jointly(self, pairs: Pairs) -> Tensor:
        """Return the features of all pairs, normalised as one batch: [N, 2B, hidden]."""
        inputs = self._shared(torch.cat([pairs.obs, pairs.next_obs]), torch.cat([pairs.action, pairs.next_action]))
        return self.body(inputs, by_batch=True)

    def _shared(self, obs: Tensor, action: Tensor) -> Tensor:
        inputs = torch.cat([obs, action], dim=-1)
        return inputs.expand(self.members, *inputs.shape)  # [N, B, in] without a copy


class DroQCritic(EnsembleCritic):
    """Two hidden layers with dropout and LayerNorm before each ReLU (Hiraoka et al., 2022, DroQ).

    With `dropout` 0 it is LayerNorm alone (Ball et al., 2023, RLPD).

    Dropout is on in updates, of target critics and policy too, and off in evaluation. With `samples` M > 1,
    targets and policy read each critic under M masks, as M estimates: samples of an approximate posterior (Gal
    and Ghahramani, 2016) instead of a larger ensemble. TD-learning moves each critic under one mask.
    """

    def __init__(
        self,
        inputs: int,
        *,
        members: int = 2,
        atoms: int = 1,
        hidden: int = 256,
        support: Support | None = None,
        dropout: float = 0.01,
        samples: int = 1,
    ) -> None:
        layers: list[nn.Module] = []
        for width in (inputs, hidden):
            linear, norm = EnsembleLinear(members, width, hidden), EnsembleLayerNorm(members, hidden, eps=1e-5)
            layers += [linear, *([EnsembleDropout(dropout)] if dropout else []), norm, nn.ReLU()]
        super().__init__(nn.Sequential(*layers), EnsembleLinear(members, hidden, atoms), support)
        self.samples = samples

    def forward(self, obs: Tensor, action: Tensor) -> Values:
        """[B, obs], [B, act] -> [N, B, K], without dropout."""
        return self._under(obs, action, masks=0)

    def current(self, pairs: Pairs) -> Values:
        """Return the predictions that TD-learning moves, each under one mask: [N, B, K]."""
        return self._under(pairs.obs, pairs.action, masks=1)

    def following(self, pairs: Pairs) -> Values:
        """Return the estimates that its targets are made of, each under M masks: [N * M, B, K]."""
        return self._under(pairs.next_obs, pairs.next_action, masks=self.samples)

    def judged(self, obs: Tensor, action: Tensor) -> Values:
        """Return the estimates that the policy climbs, each under M masks: [N * M, B, K]."""
        return self._under(obs, action, masks=self.samples)

    def averaged(self) -> Self:
        """Return the target critics, with masks of their own."""
        copied = super().averaged()
        for layer in copied.body:
            if isinstance(layer, EnsembleDropout):
                layer.key.bitwise_xor_(1 << 30)
        return copied

    def _under(self, obs: Tensor, action: Tensor, masks: int) -> Values:
        first, *rest = self.body
        hidden = first(torch.cat([obs, action], dim=-1))  # [N, B, hidden]
        if masks > 1:
            hidden = hidden.repeat(1, masks, 1)  # [N, M * B, hidden]: the first layer is the same for all masks
        for layer in rest:
            if masks or not isinstance(layer, EnsembleDropout):
                hidden = layer(hidden)
        outputs = self.head(hidden)
        return self.read(outputs.view(-1, len(obs), outputs.shape[-1]))


class BatchNormTrunk(nn.Module):
    """XQC's policy network: the critics' body, and one linear layer with units of length 1."""

    def __init__(self, inputs: int, hidden: int, outputs: int, momentum: float) -> None:
        super().__init__()
        self.body, self.head = BatchNormBody(1, inputs, hidden, momentum), UnitHead(1, hidden, outputs)

    def forward(self, obs: Tensor, *, by_batch: bool = False) -> Tensor:
        """[.., obs] -> [.., out]; all leading axes are one batch."""
        rows = obs.reshape(1, -1, obs.shape[-1])
        outputs: Tensor = self.head(self.body(rows, by_batch=by_batch))
        return outputs.view(*obs.shape[:-1], outputs.shape[-1])

    def normalise_(self) -> None:
        """Project the weights back after an optimizer step."""
        self.body.normalise_()
        self.head.normalise_()


class XQCActor(SquashedGaussianActor):
    """A squashed Gaussian on XQC's network: the batch normalises its own update, running statistics all else."""

    net: BatchNormTrunk

    def __init__(
        self,
        obs_size: int,
        action_size: int,
        hidden: int = 256,
        log_std: LogStdForm = "clamped-10",
        momentum: float = 0.99,
    ) -> None:
        net = BatchNormTrunk(obs_size, hidden, 2 * action_size, momentum)
        super().__init__(obs_size, action_size, hidden, log_std, net=net)

    def xavier_(self) -> None:
        """Keep the weights: their scale is fixed."""

    def learning(self, obs: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
        """Return an action that the policy itself learns from, and its log-probability."""
        return self.action_for_update(self.net(obs, by_batch=True), noise)

    def normalise_(self) -> None:
        """Project the weights back after an optimizer step."""
        self.net.normalise_()
