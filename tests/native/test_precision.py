"""`--precision bfloat16`: where it works, and where it is refused."""

import dataclasses

import pytest
import torch
from pydantic import ValidationError

from learners import needs_bfloat16, needs_library
from pessimism.agents.critic_learner import CompiledLearner, NativeLearner
from pessimism.config.resolve import resolved
from pessimism.errors import UserError
from pessimism.native import products
from pessimism.native.library import load
from pessimism.training.build import build_agent
from pessimism.types import Batch

ASKED = {"env": "Hopper-v4", "precision": "bfloat16", "target_entropy": -3.0, "critic": {"hidden": 32}}


@needs_bfloat16
@pytest.mark.parametrize(
    ("preset", "learner"),
    [("gpl-sac", NativeLearner), pytest.param("gpl-xqc", CompiledLearner, marks=pytest.mark.slow)],
)
def test_an_agent_learns_with_products_of_bfloat16(preset, learner):
    states = []
    for precision in ("float32", "bfloat16"):
        agent = build_agent(resolved(preset, ASKED | {"precision": precision}), (5,), 3)
        assert isinstance(agent.learner, learner)
        torch.manual_seed(0)
        obs, action, reward, next_obs = (torch.randn(2, 9, n) for n in (5, 3, 1, 5))
        agent.update(Batch(obs, action.tanh(), reward, torch.full_like(reward, 0.99), next_obs), 1)
        states.append(agent.state_dict())
    exact, rounded = states
    weights = [name for name in exact if name.startswith("critic.")]
    assert any(not torch.equal(exact[name], rounded[name]) for name in weights)
    for name in weights:
        torch.testing.assert_close(rounded[name], exact[name], atol=2e-3, rtol=0)


@needs_library
def test_a_processor_without_bfloat16_refuses_in_one_line(monkeypatch):
    library = dataclasses.replace(load(), tiles=False, pairs=False)
    monkeypatch.setattr(products, "load", lambda: library)
    with pytest.raises(UserError, match="--precision bfloat16 .* the processor has neither AMX nor AVX512_BF16"):
        build_agent(resolved("gpl-sac", ASKED), (5,), 3)


@needs_library
def test_a_run_of_another_machine_can_be_looked_at(monkeypatch):
    library = dataclasses.replace(load(), tiles=False, pairs=False)
    monkeypatch.setattr(products, "load", lambda: library)
    config = resolved("gpl-sac", ASKED).model_copy(update={"compile": False})  # as for evaluation and videos
    assert not isinstance(build_agent(config, (5,), 3).learner, NativeLearner)


@pytest.mark.parametrize("changes", [{"compile": False}, {"device": "cuda"}])
def test_bfloat16_is_refused_uncompiled_and_on_a_gpu(changes):
    with pytest.raises((UserError, ValidationError), match="precision bfloat16 is for compiled updates"):
        resolved("gpl-sac", ASKED | changes)
