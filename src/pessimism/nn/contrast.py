"""Contrastive learning of features: two views of one picture should look alike (CURL)."""

import torch
from torch import Tensor, nn


class Contrast(nn.Module):
    """InfoNCE with a learned bilinear similarity (Laskin et al., 2020)."""

    def __init__(self, features: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.rand(features, features))

    def forward(self, anchor: Tensor, positive: Tensor) -> Tensor:
        """Return the loss of telling each anchor's own positive from the others: 2 x [B, features] -> scalar."""
        logits = anchor @ self.weight @ positive.mT  # [B, B]
        return nn.functional.cross_entropy(logits, torch.arange(len(anchor), device=anchor.device))
