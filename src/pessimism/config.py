"""Every setting of a run: frozen models whose field texts are the help, each default with its source.

Torch-free, so that settings can be listed, compared and hashed without loading anything heavy.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Literal, get_args

import yaml
from pydantic import BaseModel, Field, ValidationError, field_validator, model_validator

from pessimism.errors import UserError, nearest
from pessimism.settings import (
    AUTHOR,
    DRQ,
    HERE,
    PAPER,
    CriticSettings,
    LearnedPenaltySettings,
    ModelSettings,
    PessimismSettings,
    PixelSettings,
    Settings,
    SubsetMinimumSettings,
    setting,
)
from pessimism.tasks import canonical


class EvaluationSettings(Settings):
    """Deterministic episodes on an environment of their own."""

    every: int = setting(1000, "environment steps between evaluations; 0 for none", "paper, App. B", ge=0)
    episodes: int = setting(5, "episodes per evaluation", "paper, App. B", ge=1)


class BiasSettings(Settings):
    """The bias meter: predicted against observed soft returns, on an environment of its own."""

    every: int = setting(1000, "environment steps between measurements; 0 for none", "paper, App. B.1", ge=0)
    episodes: int = setting(10, "stochastic episodes per measurement", "paper, App. B.1", ge=1)
    tail: float = setting(
        0.01, "states of cut episodes count while the unseen return weighs less than this", HERE, gt=0, le=1
    )


class LogSettings(Settings):
    """Sinks beside metrics.jsonl, which is always written."""

    every: int = setting(100, "environment steps that a line of training metrics averages over", HERE, ge=1)
    tensorboard: bool = setting(True, "write TensorBoard events (extra: tracking)", HERE)
    wandb: str | None = setting(None, "W&B project to log to (extra: wandb)", HERE)


class CheckpointSettings(Settings):
    """Exact resume."""

    every: int = setting(1000, "environment steps between checkpoints", HERE, ge=1)
    keep: int = setting(2, "newest checkpoints to keep", HERE, ge=1)


class Config(Settings):
    """A run."""

    algorithm: str = setting("gpl-sac", "preset that the settings started from")
    env: str = Field(
        description="Gymnasium id of the task, or dmc/domain-task of DeepMind Control",
        json_schema_extra={"source": "asked for"},
        min_length=1,
    )
    env_kwargs: dict[str, Any] = setting({}, "arguments of the environment, as {name: value}")
    observation: Literal["full", "truncated"] = setting(
        "full", "all that the task shows, or positions and velocities alone (Ant, Humanoid; MBPO's)"
    )
    action_repeat: int = setting(1, "frames of the task that each action is kept for, one step in all", ge=1)
    pixels: PixelSettings | None = setting(None, "observations are pictures; empty: the task's own numbers")
    seed: int = setting(0, "seed of every random stream", ge=0)
    steps: int = setting(100_000, "environment steps to train for", "paper, 100K table", ge=1)
    random_steps: int = setting(5000, "first steps: uniform random actions and no learning", PAPER, ge=0)
    update_every: int = setting(1, "environment steps between updates", PAPER, ge=1)
    updates_per_step: int = setting(20, "critic updates each time (UTD, where update_every is 1)", PAPER, ge=1)
    policy_every: int = setting(
        0, "critic updates per update of policy, alpha and beta; 0: all of an environment step", PAPER, ge=0
    )
    batch_size: int = setting(256, "transitions per critic update", PAPER, ge=1)
    replay_capacity: int = setting(
        1_000_000, "transitions kept, or frames where observations are pictures", PAPER, ge=1
    )
    replay_file: str | None = setting(None, "file on a fast disk that holds the frames; empty: they are in memory")
    n_step: int = setting(1, "rewards that are summed before the bootstrap (pictures only)", PAPER, ge=1, le=1000)
    discount: float = setting(0.99, "gamma", PAPER, ge=0, lt=1)
    tau: float = setting(0.005, "share of the critic in its target per update, 1 - rho", PAPER, gt=0, le=1)
    average_with: Literal["critic", "policy"] = setting(
        "critic", "targets move after each critic update, or after each policy update (pictures only)", PAPER
    )
    lr: float = setting(3e-4, "learning rate of policy and critics (Adam, beta1 0.9)", PAPER, gt=0)
    hidden: int = setting(256, "width of the policy's two hidden layers", PAPER, ge=1)
    policy: Literal["gaussian", "noisy"] = setting(
        "gaussian", "squashed Gaussian with entropy, or deterministic with scheduled noise (pictures only)", PAPER
    )
    noise: tuple[float, float, int] = setting(
        (1.0, 0.1, 500_000),
        "noisy policy: standard deviation from the first to the second, over so many steps",
        DRQ,
    )
    noise_clip: float = setting(0.3, "noisy policy: where noise is cut in updates", DRQ, gt=0)
    actor_clip: float = setting(
        40.0, "global norm that the policy's gradient is clipped to; 0: not clipped", AUTHOR, ge=0
    )
    log_std: Literal["squashed", "clamped"] = setting(
        "squashed", "policy's log-std: tanh into [-10, 2], or cut to [-20, 2]", AUTHOR
    )
    initialisation: Literal["orthogonal", "xavier", "unit-orthogonal"] = setting(
        "orthogonal", "first weights of policy and critics", AUTHOR
    )
    alpha: float = setting(1.0, "initial weight of the entropy; 0: no entropy", PAPER, ge=0)
    alpha_lr: float = setting(1e-4, "learning rate of log alpha", PAPER, gt=0)
    alpha_beta1: float = setting(0.5, "Adam's beta1 for log alpha", PAPER, ge=0, lt=1)
    target_entropy: float | None = setting(
        None, "target entropy of the policy; empty: the paper's for its tasks, else -dim(action)", PAPER
    )
    critic: CriticSettings = setting(CriticSettings(), "critics")
    pessimism: PessimismSettings = setting(LearnedPenaltySettings(), "how the critics are read")
    model: ModelSettings | None = setting(None, "learned model of the task (MBPO); empty: none")
    evaluation: EvaluationSettings = setting(EvaluationSettings(), "evaluation")
    bias: BiasSettings = setting(BiasSettings(), "bias meter")
    log: LogSettings = setting(LogSettings(), "logs")
    checkpoint: CheckpointSettings = setting(CheckpointSettings(), "checkpoints")
    compile: bool = setting(True, "compile the update (first update takes some seconds longer)")
    threads: int = setting(0, "CPU threads; 0: as many as torch takes by itself", ge=0)
    device: Literal["cpu", "cuda"] = setting("cpu", "where the networks live")

    @field_validator("env")
    @classmethod
    def _one_name(cls, env: str) -> str:
        return canonical(env) or env

    @model_validator(mode="after")
    def _penalty_needs_two(self) -> "Config":
        if self.critic.members < 2 and self.pessimism.name not in ("minimum", "subset-minimum"):
            raise ValueError("critic.members = 1 has no disagreement to weigh: take 2 or more critics")
        return self

    @model_validator(mode="after")
    def _subset_fits(self) -> "Config":
        rule, members = self.pessimism, self.critic.members
        if isinstance(rule, SubsetMinimumSettings) and rule.subset > members:
            raise ValueError(f"pessimism.subset = {rule.subset:g} cannot be drawn from {members} critics")
        return self

    @model_validator(mode="after")
    def _policy_updates_fit(self) -> "Config":
        if self.policy_every and self.updates_per_step % self.policy_every:
            raise ValueError(f"policy_every must divide the {self.updates_per_step} updates of a step")
        return self

    @model_validator(mode="after")
    def _model_has_data(self) -> "Config":
        if self.model is not None and self.random_steps < 10:
            raise ValueError("a model is first fitted to the random steps: random_steps must be 10 or more")
        return self

    @model_validator(mode="after")
    def _only_from_pixels(self) -> "Config":
        apart = {"n_step": 1, "average_with": "critic", "policy": "gaussian", "replay_file": None}
        changed = [name for name, value in apart.items() if getattr(self, name) != value]
        if self.pixels is None and changed:
            raise ValueError(f"{changed[0]} is for agents on pictures (such as drqv2): this one sees numbers")
        return self

    @model_validator(mode="after")
    def _only_from_states(self) -> "Config":
        if self.pixels is not None and (self.model is not None or self.observation != "full"):
            raise ValueError("a model and truncated observations need a task's numbers: leave them out on pictures")
        if (self.alpha == 0) != (self.policy == "noisy"):
            raise ValueError("alpha = 0 belongs to the noisy policy, which has no entropy, and to no other")
        return self

    @model_validator(mode="after")
    def _batch_fits_replay(self) -> "Config":
        if self.replay_capacity < self.batch_size:
            raise ValueError(f"replay_capacity must hold a batch of {self.batch_size} transitions")
        return self


OPERATIONAL = ("steps", "log", "checkpoint", "threads", "replay_file")
"""Fields that may change when a run goes on: they do not alter what it computes."""

Leaf = tuple[str, Any]


def is_operational(path: str) -> bool:
    """Tell whether the setting at a dotted path may change when a run goes on."""
    return path.partition(".")[0] in OPERATIONAL


def leaves(settings: BaseModel | Mapping[str, Any], prefix: str = "") -> Iterator[Leaf]:
    """Yield (dotted name, value) for every setting."""
    items = settings.model_dump().items() if isinstance(settings, BaseModel) else settings.items()
    for name, value in items:
        if isinstance(value, Mapping) and name != "env_kwargs":
            yield from leaves(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def field_info(settings: BaseModel, path: str) -> tuple[str, str, Any]:
    """Return help text, source and default of the setting at a dotted path."""
    *sections, name = path.split(".")
    for section in sections:
        settings = getattr(settings, section)
    field = type(settings).model_fields[name]
    extra = field.json_schema_extra
    source = extra["source"] if isinstance(extra, dict) else HERE
    return field.description or "which rule", str(source), field.default


def merge(base: dict[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Return `base` with `changes` laid over it, section by section.

    Another `pessimism.name` starts from that rule's own defaults: the old rule's fields would not fit.
    """
    merged = dict(base)
    for name, value in changes.items():
        old = merged.get(name)
        if isinstance(value, Mapping) and isinstance(old, dict) and name != "env_kwargs":
            other_rule = "name" in value and value["name"] != old.get("name", value["name"])
            merged[name] = dict(value) if other_rule else merge(old, value)
        else:
            merged[name] = value
    return merged


def nested(path: str, value: Any) -> dict[str, Any]:  # noqa: ANN401
    """Return {"a": {"b": value}} for the path "a.b"."""
    first, _, rest = path.partition(".")
    return {first: nested(rest, value) if rest else value}


def unfolded(changes: Mapping[str, Any]) -> dict[str, Any]:
    """Return {"a": {"b": value}, ...} for {"a.b": value, ...}."""
    values: dict[str, Any] = {}
    for path, value in changes.items():
        values = merge(values, nested(path, value))
    return values


def option_names() -> list[str]:
    """Return the dotted names of all settings, those of every rule included."""
    rules = get_args(get_args(PessimismSettings)[0])
    names = [name for name, _ in leaves(Config(env="any")) if not name.startswith("pessimism.")]
    names += [f"model.{name}" for name in ModelSettings.model_fields]
    names += [f"pixels.{name}" for name in PixelSettings.model_fields]
    return names + sorted({f"pessimism.{name}" for rule in rules for name in rule.model_fields})


def validated(values: Mapping[str, Any]) -> Config:
    """Return the config, or say in one line which setting is wrong."""
    try:
        return Config.model_validate(values)
    except ValidationError as error:
        first = error.errors()[0]
        path = [str(part) for part in first["loc"]]
        if path and path[0] == "pessimism" and len(path) > 1:
            del path[1]  # the union's tag
        name = ".".join(path)
        if first["type"] == "extra_forbidden" and name in option_names():
            raise UserError(f"the rule {values['pessimism']['name']} has no setting {path[-1]}") from None
        if first["type"] == "union_tag_invalid":
            rules = first["ctx"]["expected_tags"].replace("'", "")
            raise UserError(f"pessimism.name: there is no rule {first['ctx']['tag']}, only {rules}") from None
        if first["type"] == "extra_forbidden":
            raise UserError(f"unknown setting {name}{nearest(name, option_names())}") from None
        if first["type"] == "missing":
            raise UserError(f"{name} is missing: give --{name.replace('_', '-')}") from None
        message = first["msg"].removeprefix("Value error, ")
        shown = f", not {first['input']!r}" if name and not isinstance(first["input"], dict) else ""
        raise UserError(f"{name + ': ' if name else ''}{message}{shown}") from None


def differences(old: Config, new: Config) -> list[str]:
    """Return one text for each setting that changes what the run computes."""
    before, after = dict(leaves(old)), dict(leaves(new))
    return [
        f"{name}: {before.get(name)} there, {after.get(name)} asked for"
        for name in {**before, **after}
        if not is_operational(name) and before.get(name) != after.get(name)
    ]


def dump_yaml(config: Config, sources: Mapping[str, str]) -> str:
    """Return the config as YAML, with the source of each value as a comment behind it."""
    lines: list[str] = []
    section = ""
    for path, value in leaves(config):
        parent, _, name = path.rpartition(".")
        if parent != section:
            section = parent
            lines += [f"{parent}:"] if parent else []
        text = yaml.safe_dump({name: value}, default_flow_style=True, width=10_000).strip()[1:-1]
        lines.append(f"{'  ' if parent else ''}{text}  # {sources.get(path, HERE)}")
    return "\n".join(lines) + "\n"
