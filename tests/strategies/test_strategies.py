"""What each strategy makes of an ensemble, and what makes beta move."""

import ast
import inspect
from pathlib import Path

import pytest
import torch

import pessimism.strategies
from pessimism.strategies import ClippedMinimum, FixedPenalty, LearnedPenalty
from pessimism.training.build import linear
from pessimism.values import pairwise_distance

VALUES = torch.tensor([[[1.0], [8.0]], [[5.0], [2.0]], [[3.0], [2.0]]])  # N = 3, B = 2
# means 3 and 4; mean pairwise distances (4 + 2 + 2) / 3 and (6 + 6 + 0) / 3


def test_fixed_penalty_on_literals():
    value = FixedPenalty(0.75).target_value(VALUES)
    assert value.flatten().tolist() == pytest.approx([3 - 0.75 * 8 / 3, 4 - 0.75 * 4])


@pytest.mark.parametrize("share", [0.0, 0.5, 2.0])
def test_the_policy_reads_a_share_of_beta_and_targets_all_of_it(share):
    strategy = FixedPenalty(0.75, actor_share=share)
    assert strategy.actor_value(VALUES).flatten().tolist() == pytest.approx(
        [3 - share * 0.75 * 8 / 3, 4 - share * 0.75 * 4]
    )
    assert strategy.target_value(VALUES).equal(FixedPenalty(0.75).target_value(VALUES))


def test_half_a_distance_below_the_mean_is_the_minimum_of_two():
    values = torch.randn(2, 100, 1, generator=torch.Generator().manual_seed(0))
    fixed, minimum = FixedPenalty(0.5), ClippedMinimum()
    torch.testing.assert_close(fixed.target_value(values), minimum.target_value(values))
    torch.testing.assert_close(fixed.actor_value(values), minimum.actor_value(values))


def test_beta_rises_while_targets_exceed_predictions_and_falls_while_they_fall_short():
    values, above, below = torch.zeros(3, 4, 1), torch.full((4, 1), 2.0), torch.full((4, 1), -2.0)
    strategy = LearnedPenalty(0.5, lr=0.01)
    for target, sign in ((above, 1), (below, -1)):
        before = strategy.beta.item()
        for _ in range(50):
            strategy.update(values, target)
        assert sign * (strategy.beta.item() - before) > 0.1


def test_first_dual_step_is_one_learning_rate_whatever_the_size_of_the_error():
    strategy = LearnedPenalty(0.5, lr=1e-3)
    strategy.update(torch.zeros(3, 4, 1), torch.full((4, 1), 1e-3))
    assert strategy.beta.item() == pytest.approx(0.501, abs=1e-6)


def test_dual_gradient_is_minus_the_mean_error():
    strategy = LearnedPenalty(0.5)
    loss = strategy.penalty_loss(VALUES, torch.tensor([[4.0], [7.0]]))
    (gradient,) = torch.autograd.grad(loss, [strategy.beta])
    # mean of targets 5.5, mean of predictions 3.5
    assert gradient.item() == pytest.approx(-2.0)


def test_penalty_loss_carries_no_gradient_through_the_target():
    strategy = LearnedPenalty(0.5)
    target = strategy.target_value(VALUES)  # depends on beta
    (gradient,) = torch.autograd.grad(strategy.penalty_loss(VALUES, target), [strategy.beta])
    assert gradient.item() == pytest.approx(-(target.detach() - VALUES).mean().item())


def test_optimism_shifts_the_actor_and_not_the_target():
    strategy = FixedPenalty(0.5, optimism=linear(0.5, 0.0, 100))
    distance = pairwise_distance(VALUES)
    for step, shift in ((0, 0.5), (50, 0.25), (100, 0.0), (1000, 0.0)):
        strategy.advance(step)
        expected = VALUES.mean(0) - (0.5 - shift) * distance
        torch.testing.assert_close(strategy.actor_value(VALUES), expected)
        torch.testing.assert_close(strategy.target_value(VALUES), VALUES.mean(0) - 0.5 * distance)


def test_state_of_a_learned_penalty_is_complete():
    values, target = torch.zeros(3, 4, 1), torch.ones(4, 1)
    one, two = LearnedPenalty(0.5), LearnedPenalty(0.1)
    for _ in range(5):
        one.update(values, target)
    two.load_state_dict(one.state_dict())
    for _ in range(5):
        one.update(values, -2 * target)
        two.update(values, -2 * target)
    assert one.beta.item() == two.beta.item()


def test_strategies_import_torch_and_what_is_below_them_only():
    folder = Path(inspect.getfile(pessimism.strategies)).parent
    below = ("pessimism.values", "pessimism.types")
    allowed = ("torch", "math", "collections", "typing", "pessimism.strategies", *below)
    for file in folder.glob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            names = [node.module] if isinstance(node, ast.ImportFrom) else []
            names += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            assert all(name.startswith(allowed) for name in names), (file.name, names)
