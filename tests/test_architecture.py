"""Who may import whom: rooms point down only, and no modules import each other in a circle."""

import ast
import graphlib
from pathlib import Path

import pytest

import pessimism

ROOT = Path(pessimism.__file__).parent
# From the top to the bottom. A module may import from lines below its own, and from its own room. A dotted name
# is a module with a line of its own.
LAYERS = [
    {"__main__", "experiments.child"},
    {"cli"},
    {"experiments.reproduce"},
    {"experiments", "tools", "bench"},
    {"api", "sb3"},
    {"training.run"},
    {"training.build", "training.export"},
    {"agents", "models", "training", "analysis"},
    {"replay", "envs", "native"},
    {"listing"},
    {"config", "strategies", "nn"},
    {"processes", "terminal"},
    {"arguments", "extras", "types", "records"},
    {"errors", "values"},
]
LEVEL = {name: depth for depth, names in enumerate(LAYERS) for name in names}
TORCH_FREE = {
    "analysis",
    "cli",
    "config",
    "errors",
    "experiments.suites",
    "extras",
    "listing",
    "processes",
    "records",
    "terminal",
}
HEAVY = {"torch", "gymnasium", "mujoco", "matplotlib"}


def name_of(path):
    """Return a module's dotted name below the package."""
    parts = list(path.relative_to(ROOT).with_suffix("").parts)
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {name_of(path): path for path in ROOT.rglob("*.py") if path != ROOT / "__init__.py"}


def imports(path):
    """Yield (module, whether it is loaded with the file) for each import that happens at run time."""
    tree = ast.parse(path.read_text())
    top = set(map(id, tree.body))
    for_types = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
        for inner in ast.walk(node)
    }
    for node in ast.walk(tree):
        if id(node) in for_types:
            continue
        if isinstance(node, ast.Import):
            yield from ((alias.name, id(node) in top) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            inside = [f"{node.module}.{alias.name}" for alias in node.names]
            modules = {name if name.removeprefix("pessimism.") in MODULES else str(node.module) for name in inside}
            yield from ((module, id(node) in top) for module in modules)


def ours(path):
    """Yield the modules of this package that a file imports."""
    for module, _ in imports(path):
        if module.startswith("pessimism."):
            yield module.removeprefix("pessimism.")


def level(module):
    """Return a module's line among the layers: its own, or that of the room it is in."""
    while module not in LEVEL:
        assert "." in module, f"{module} has no place among the layers"
        module = module.rpartition(".")[0]
    return LEVEL[module]


def room(module):
    return module.partition(".")[0]


@pytest.mark.parametrize("module", MODULES)
def test_imports_point_down(module):
    for there in ours(MODULES[module]):
        same = room(there) == room(module)
        allowed = level(there) >= level(module) if same else level(there) > level(module)
        assert allowed, f"{module} imports {there}"


def test_no_modules_import_each_other_in_a_circle():
    graph = {module: set(ours(path)) for module, path in MODULES.items()}
    tuple(graphlib.TopologicalSorter(graph).static_order())


@pytest.mark.parametrize("module", MODULES)
def test_what_must_be_quick_to_load_does_not_load_torch(module):
    if any(module == name or module.startswith(f"{name}.") for name in TORCH_FREE):
        assert not {name.split(".")[0] for name, top in imports(MODULES[module]) if top} & HEAVY


def test_agents_know_no_environment_no_loop_and_no_config():
    for path in (ROOT / "agents").glob("*.py"):
        for module, _ in imports(path):
            assert not module.startswith(("pessimism.envs", "pessimism.training", "pessimism.config", "gymnasium"))


def test_nothing_is_ever_unpickled():
    words = ("import pickle", "torch.load(", "allow_pickle=True", "cloudpickle", "joblib", "marshal")
    for path in ROOT.rglob("*.py"):
        assert not [word for word in words if word in path.read_text()], path


def test_test_files_have_names_of_their_own():
    names = [path.name for path in Path(__file__).parent.rglob("test_*.py")]
    assert len(names) == len(set(names)), "pytest imports test files by their names alone"
