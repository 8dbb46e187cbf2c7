"""Who may import whom: arrows point down only."""

import ast
from pathlib import Path

import pytest

import pessimism

ROOT = Path(pessimism.__file__).parent
# From the top to the bottom. A module may import from lines below its own, and from its own package.
LAYERS = [
    {"__main__", "child"},
    {"cli"},
    {"reproduce"},
    {"sweep"},
    {"demo", "doctor", "bench"},
    {"video"},
    {"api"},
    {"run"},
    {"build"},
    {"agents", "models", "training", "analysis", "suites"},
    {"replay", "envs", "presets", "native", "options"},
    {"config", "strategies", "nn"},
    {"values", "ops", "schedules", "settings", "tasks"},
    {"types", "records", "errors", "reference"},
]
LEVEL = {name: depth for depth, names in enumerate(LAYERS) for name in names}
TORCH_FREE = {
    "config",
    "settings",
    "tasks",
    "presets",
    "records",
    "errors",
    "analysis",
    "cli",
    "options",
    "schedules",
    "reference",
    "suites",
}


def imports(path):
    """Yield (module, at the top level of the file) for each import."""
    tree = ast.parse(path.read_text())
    top = set(map(id, tree.body))
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name, id(node) in top) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            if node.module == "pessimism":
                yield from ((f"pessimism.{alias.name}", id(node) in top) for alias in node.names)
            else:
                yield node.module, id(node) in top


MODULES = [path for path in ROOT.rglob("*.py") if path != ROOT / "__init__.py"]


def part(path):
    return path.relative_to(ROOT).parts[0].removesuffix(".py")


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(ROOT)))
def test_imports_point_down(path):
    here = part(path)
    assert here in LEVEL, f"{here} has no place among the layers"
    for module, _ in imports(path):
        if module.startswith("pessimism."):
            there = module.split(".")[1]
            assert there == here or LEVEL[there] > LEVEL[here], f"{here} imports {there}"


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(ROOT)))
def test_what_must_be_quick_to_load_does_not_load_torch(path):
    if part(path) in TORCH_FREE:
        loaded = {module.split(".")[0] for module, top in imports(path) if top}
        assert not loaded & {"torch", "gymnasium", "mujoco", "matplotlib"}


def test_agents_know_no_environment_no_loop_and_no_config():
    for path in (ROOT / "agents").glob("*.py"):
        for module, _ in imports(path):
            assert not module.startswith(("pessimism.envs", "pessimism.training", "pessimism.config", "gymnasium"))


def test_nothing_is_ever_unpickled():
    words = ("import pickle", "torch.load(", "allow_pickle=True", "cloudpickle", "joblib", "marshal")
    for path in ROOT.rglob("*.py"):
        assert not [word for word in words if word in path.read_text()], path
