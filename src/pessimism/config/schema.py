"""Every setting of a run: frozen models whose field texts are the help, each default with its source.

Loads no torch: listing, comparing and hashing settings stays fast.
"""

from collections.abc import Iterator
from pathlib import PurePath
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, field_validator, model_validator

from pessimism.config.choices import PolicyForm
from pessimism.config.settings import (
    ALGORITHM_1,
    AUTHOR,
    DRQ,
    HERE,
    MOST_THREADS,
    PAPER,
    RLPD,
    WIDEST,
    XQC,
    CriticSettings,
    ModelSettings,
    PixelSettings,
    Settings,
    setting,
)
from pessimism.config.strategies import AnyStrategy, LearnedPenaltySettings, PenaltySettings
from pessimism.config.tasks import canonical


class EvaluationSettings(Settings):
    """Deterministic episodes on an environment of their own."""

    every: int = setting(1000, "environment steps between evaluations; 0 for none", "paper, App. B", ge=0)
    episodes: int = setting(5, "episodes per evaluation", "paper, App. B", ge=1)
    limit: int = setting(20_000, "steps after which an endless episode is cut off", HERE, ge=1)


class BiasSettings(Settings):
    """The bias meter: predicted against observed soft returns, on an environment of its own."""

    every: int = setting(1000, "environment steps between measurements; 0 for none", "paper, App. B.1", ge=0)
    episodes: int = setting(10, "stochastic episodes per measurement", "paper, App. B.1", ge=1)
    limit: int = setting(5000, "steps after which an endless episode is cut off", HERE, ge=1)
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
    env: Annotated[str, AfterValidator(canonical)] = Field(
        description="Gymnasium id of the task, or dmc/domain-task of DeepMind Control",
        json_schema_extra={"source": "asked for"},
        min_length=1,
    )
    env_kwargs: dict[str, Any] = setting({}, "arguments of the environment, as {name: value}")
    observation: Literal["full", "truncated"] = setting(
        "full", "all that the task shows, or positions and velocities alone (Ant, Humanoid; MBPO's)"
    )
    action_repeat: int = setting(1, "frames for which each action is repeated; together they are one step", ge=1)
    pixels: PixelSettings | None = setting(None, "observations are images; empty: the task's states")
    seed: int = setting(0, "seed of every random stream", ge=0)
    steps: int = setting(100_000, "environment steps to train for", "paper, 100K table", ge=1)
    random_steps: int = setting(5000, "first steps: uniform random actions and no learning", PAPER, ge=0)
    update_every: int = setting(1, "environment steps between updates", ALGORITHM_1, ge=1)
    learn_at: Literal["step", "episode"] = setting(
        "step", "when updates are made: after each step, or all of an episode's at its end (robots)", ALGORITHM_1
    )
    updates_per_step: int = setting(20, "critic updates each time (UTD, where update_every is 1)", PAPER, ge=1)
    policy_every: int = setting(
        0, "critic updates per update of policy, alpha and beta; 0: all of an environment step", PAPER, ge=0
    )
    batch_size: int = setting(256, "transitions per critic update", PAPER, ge=1)
    replay_capacity: int = setting(
        1_000_000, "transitions kept, or frames where observations are images", PAPER, ge=1
    )
    replay_file: str | None = setting(None, "file on a fast disk that holds the replay; empty: it is in memory")
    held_out: float | None = setting(
        None,
        "share of transitions that no critic is fitted to; empty: 0.05 for the strategy `validation`, else none",
        ge=0,
        le=0.5,
    )
    prior: tuple[str, ...] = setting(
        (), "transitions to learn from beside the run's own: run directories, npz files, minari:ID (extra: minari)"
    )
    prior_share: float = setting(0.5, "share of each batch that is prior data, if there are some", RLPD, gt=0, le=1)
    prior_checksum: str | None = setting(None, "checksum that the prior data must have; empty: any")
    n_step: int = setting(1, "rewards that are summed before the bootstrap", ALGORITHM_1, ge=1, le=1000)
    discount: float = setting(0.99, "gamma", PAPER, ge=0, lt=1)
    tau: float = setting(0.005, "share of the critic in its target per update, 1 - rho", PAPER, gt=0, le=1)
    average_with: Literal["critic", "policy"] = setting(
        "critic", "target critics move after each critic update, or after each policy update", ALGORITHM_1
    )
    lr: float = setting(3e-4, "learning rate of policy and critics (Adam, beta1 0.9)", PAPER, gt=0)
    lr_end: float | None = setting(
        None,
        "learning rate after lr_steps, linearly, alpha's by the same share; empty: it stays",
        ALGORITHM_1,
        gt=0,
    )
    lr_steps: int = setting(1_000_000, "environment steps over which the learning rate falls to lr_end", XQC, ge=1)
    scale_rewards: bool = setting(
        False, "divide rewards by the standard deviation of the running discounted return", ALGORITHM_1
    )
    policy_form: PolicyForm = setting(
        "plain", "the policy's network: two hidden layers, or XQC's four with BatchNorm", PAPER
    )
    hidden: int = setting(256, "width of the policy's hidden layers", PAPER, ge=1, le=WIDEST)
    policy: Literal["gaussian", "noisy"] = setting(
        "gaussian", "squashed Gaussian with entropy, or deterministic with scheduled noise", ALGORITHM_1
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
    log_std: Literal["squashed", "clamped", "clamped-10"] = setting(
        "squashed", "policy's log-std: tanh into [-10, 2], or cut to [-20, 2] or [-10, 2]", AUTHOR
    )
    initialisation: Literal["orthogonal", "xavier", "unit-orthogonal"] = setting(
        "orthogonal", "first weights of policy and critics", AUTHOR
    )
    alpha: float = setting(1.0, "initial weight of the entropy; 0: no entropy", PAPER, ge=0)
    alpha_lr: float = setting(1e-4, "learning rate of log alpha", PAPER, gt=0)
    alpha_beta1: float = setting(0.5, "Adam's beta1 for log alpha", PAPER, ge=0, lt=1)
    target_entropy: float | None = setting(
        None, "target entropy of the policy; empty: entropy_per_action or, if that is empty, the paper's", PAPER
    )
    entropy_per_action: float | None = setting(
        None, "target entropy for each dimension of the action; empty: the paper's for its tasks, else -1", PAPER
    )
    critic: CriticSettings = setting(CriticSettings(), "critics")
    pessimism: AnyStrategy = setting(LearnedPenaltySettings(), "how the critics are read")
    model: ModelSettings | None = setting(None, "learned model of the task (MBPO); empty: none")
    evaluation: EvaluationSettings = setting(EvaluationSettings(), "evaluation")
    bias: BiasSettings = setting(BiasSettings(), "bias meter")
    log: LogSettings = setting(LogSettings(), "logs")
    checkpoint: CheckpointSettings = setting(CheckpointSettings(), "checkpoints")
    resume: Literal["exact", "inexact"] = setting(
        "exact", "where an environment does not repeat its episode: refuse to resume, or begin a new episode"
    )
    compile: bool = setting(True, "compile the update (first update takes some seconds longer)")
    precision: Literal["float32", "bfloat16"] = setting(
        "float32",
        "of the products in the critics' update; bfloat16 needs AMX or AVX512_BF16, weights stay float32",
    )
    threads: int = setting(0, "CPU threads; 0: torch's default", ge=0, le=MOST_THREADS)
    device: Literal["cpu", "cuda"] = setting("cpu", "where the networks are")

    @field_validator("prior", mode="before")
    @classmethod
    def _several(cls, prior: Any) -> Any:  # noqa: ANN401
        several = (prior,) if isinstance(prior, str | PurePath) else prior
        return tuple(map(str, several)) if isinstance(several, tuple | list) else several

    @model_validator(mode="after")
    def _parts_fit(self) -> "Config":
        for problem in self._problems():
            raise ValueError(problem)
        self.pessimism.check_critics(self.critic.members)
        return self

    def _problems(self) -> Iterator[str]:
        """Yield problems between settings that are valid on their own."""
        if self.pessimism.holds_out and self.held_out == 0:
            name = self.pessimism.name
            yield f"the strategy {name} learns from transitions held out: held_out must not be 0"
        apart = self.policy_every and self.updates_per_step % self.policy_every
        if apart and self.average_with == "policy":
            yield f"average_with = policy: policy_every must divide the {self.updates_per_step} updates of a step"
        if self.policy == "noisy" and self.policy_form != "plain":
            yield "the noisy policy has two hidden layers: policy_form must be plain"
        yield from self._problems_of_critics()
        if self.precision != "float32" and (self.pixels is not None or not self.compile or self.device != "cpu"):
            yield "precision bfloat16 is for compiled updates of critics on states, on a processor"
        if (self.alpha == 0) != (self.policy == "noisy"):
            yield "alpha = 0 is for the noisy policy, which has no entropy, and for no other"
        if self.replay_capacity < self.batch_size:
            yield f"replay_capacity must hold a batch of {self.batch_size} transitions"
        if self.prior and (self.pixels is not None or self.model is not None):
            yield "prior data are steps from state to state: leave prior out on images, and with a model"
        if self.model is not None:
            yield from self._problems_of_model(self.model)
        if self.pixels is not None:
            yield from self._problems_of_pixels(self.pixels)

    def _problems_of_critics(self) -> Iterator[str]:
        """Yield which forms of critics cannot be combined with other settings."""
        new = {
            "critic.form": self.critic.form in ("xqc", "droq"),
            "critic.support": self.critic.support is not None,
            "policy_form": self.policy_form != "plain",
            "scale_rewards": self.scale_rewards,
        }
        for name, used in new.items():
            if used and self.pixels is not None:
                yield f"{name}: agents on images have critics of the forms plain and residual only"
        rule = self.pessimism
        drops = self.critic.form == "droq" and self.critic.dropout > 0
        if isinstance(rule, PenaltySettings) and rule.samples > 1 and not drops:
            yield "pessimism.samples are dropout masks: they need critic.form = droq and a critic.dropout"
        if isinstance(rule, PenaltySettings) and rule.measure == "wasserstein2" and self.critic.support is not None:
            yield "pessimism.measure = wasserstein2 is for quantiles, not for a categorical head"
        if self.critic.support and (self.critic.atoms < 2 or self.critic.support[0] >= self.critic.support[1]):
            yield "critic.support is [lowest, highest] for critic.atoms of 2 or more"

    def _problems_of_model(self, model: ModelSettings) -> Iterator[str]:
        """Yield what is wrong with a learned model."""
        first, last, shortest, longest = model.schedule
        if model.elites > model.members:
            yield f"{model.elites} elites cannot be chosen from {model.members} members"
        if not (0 <= first <= last and shortest >= 1 and longest >= 1):
            yield "model.schedule is [first epoch, last epoch, length before, length after], lengths from 1"
        if self.random_steps < 10:
            yield "a model is first fitted to the random steps: random_steps must be 10 or more"
        if self.n_step > 1:
            yield f"a model learns single steps: n_step = {self.n_step} does not go with it"

    def _problems_of_pixels(self, pixels: PixelSettings) -> Iterator[str]:
        """Yield what is wrong with image observations."""
        if pixels.contrastive and not pixels.encoder_tau:
            yield "pixels.contrastive compares with a target encoder: set pixels.encoder_tau, such as 0.05"
        if self.model is not None or self.observation != "full":
            yield "a model and truncated observations need a task's states: leave them out on images"
        if self.replay_capacity < pixels.stack + self.n_step:
            yield f"replay_capacity must hold {pixels.stack} stacked frames and {self.n_step} steps"
