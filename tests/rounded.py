"""Critics whose products round their operands to bfloat16, in torch and double precision; without dropout."""

from functools import partial

import torch
from torch import nn

from pessimism.nn.backbones import DroQCritic
from pessimism.nn.ensemble import ResidualBlock


def rounded(x):
    return x.float().bfloat16().double()


class Product(torch.autograd.Function):
    """A product of rounded matrices, whose gradients are such products too."""

    @staticmethod
    def forward(context, left, right):
        context.save_for_backward(left, right)
        return rounded(left) @ rounded(right)

    @staticmethod
    def backward(context, slopes):
        left, right = context.saved_tensors
        return rounded(slopes) @ rounded(right).mT, rounded(left).mT @ rounded(slopes)


class ReadOut(torch.autograd.Function):
    """The square layer and what one atom reads from it.

    The gradient before the ReLU is error[b] readout[j] where the unit is active. C++ multiplies with the zeros and
    ones of active units instead, and rounds the other operand after it has taken in the factor beside it.
    """

    @staticmethod
    def forward(context, inputs, matrix, bias, readout):  # [N, B, H], [N, H, H], [N, 1, H], [N, H, 1]
        units = (rounded(inputs) @ rounded(matrix) + bias).relu()
        context.save_for_backward(inputs, matrix, readout, units)
        return units @ readout

    @staticmethod
    def backward(context, errors):  # [N, B, 1]
        inputs, matrix, readout, units = context.saved_tensors
        active = (units > 0).double()
        by_inputs = errors * (active @ rounded(matrix * readout.mT).mT)
        by_matrix = (rounded(inputs * errors).mT @ active) * readout.mT
        by_bias = (errors * active).sum(dim=1, keepdim=True) * readout.mT
        return by_inputs, by_matrix, by_bias, units.mT @ errors


def values(critic, obs, action, masks=0):
    """[B, obs], [B, act] -> [N, B, K], as C++ computes them."""
    first, _, square, *_ = critic.body
    head = critic.head
    inputs = torch.cat([obs, action], dim=-1).expand(len(head.weight), -1, -1)
    if isinstance(critic, DroQCritic):
        return normalised_values(critic, inputs)
    hidden = (Product.apply(inputs, first.weight) + first.bias).relu()
    if isinstance(square, ResidualBlock):
        readout, beside = square.outer.weight @ head.weight, (hidden + square.outer.bias) @ head.weight + head.bias
        hidden, square = square.norm(hidden), square.inner
    else:
        readout, beside = head.weight, head.bias
    if readout.shape[-1] == 1:
        return ReadOut.apply(hidden, square.weight, square.bias, readout) + beside
    return (Product.apply(hidden, square.weight) + square.bias).relu() @ readout + beside


def normalised_values(critic, hidden):  # [N, B, in]
    """The same of critics with a LayerNorm before each ReLU."""
    for linear, norm, relu in zip(*[iter(critic.body)] * 3, strict=True):
        hidden = relu(norm(Product.apply(hidden, linear.weight) + linear.bias))
    return hidden @ critic.head.weight + critic.head.bias


def with_rounded_products(learner):
    """Return the same learner in double precision, with products of rounded matrices."""
    other = learner.copied(torch.float64)
    for critic in (other.critic, other.averaged):
        assert isinstance(critic, nn.Module)
        critic.forward = critic._under = partial(values, critic)
    return other
