"""Everything that a run writes into its directory, and how it resumes from there."""

import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from pessimism import records
from pessimism.config.resolve import differences, validated
from pessimism.config.schema import Config
from pessimism.envs.given import CannotCopyError
from pessimism.errors import UserError
from pessimism.training.checkpoint import Checkpoint, CheckpointStore
from pessimism.training.directory import RunDirectory
from pessimism.training.evaluate import Evaluation
from pessimism.training.loop import Callback, Hooks, Trainer
from pessimism.training.sinks import EvaluationFile, JsonLinesSink, Lines, Sink, trackers

DOES_NOT_REPEAT = (
    "the environment does not repeat itself: two episodes with the same seed and actions differ. This run cannot "
    "be resumed exactly; if it is interrupted, --resume inexact continues it with a new episode"
)
FILES = {"metrics": records.METRICS, "timing": records.TIMING, "monitor": records.MONITOR}


class Recorder:
    """Logs and checkpoints of one run. After a restart each file continues from the checkpoint's position."""

    def __init__(self, directory: RunDirectory, config: Config) -> None:
        self.directory, self.config = directory, config
        self.store = CheckpointStore(directory.path, config.checkpoint.keep)
        self.lines: dict[str, Lines] = {}
        self.sinks: list[Sink] = []
        self.say: Callable[[str], None] = lambda line: None
        self.started = time.time()

    def resume(self, trainer: Trainer) -> tuple[int, list[str]]:
        """Restore the newest intact checkpoint; return its step, and a line for each problem."""
        checkpoint, torn = self.store.load(trainer.replay, lambda: trainer.checkpoint().tensors)
        if checkpoint:
            check_same(self.config, checkpoint, self.directory.path)
            if not self._restored(trainer, checkpoint):
                torn.append("inexact resume: the environment did not repeat its newest episode, a new one begins")
        elif done := self.directory.done:
            raise UserError(
                f"{self.directory.path} is done ({done.get('step')} steps) and its checkpoints are gone: it "
                "cannot go on, and nothing was changed; restore them, or give another --out to start again"
            )
        return checkpoint.step if checkpoint else 0, torn

    def _restored(self, trainer: Trainer, checkpoint: Checkpoint) -> bool:
        """Restore a checkpoint, and return whether exactly; one that cannot be read is refused in one line."""
        try:
            return trainer.restore(checkpoint, inexact=self.config.resume == "inexact")
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            said = " ".join(f"{type(error).__name__}: {error}".split())
            place = self.directory.path
            raise UserError(
                f"the checkpoint of step {checkpoint.step} in {place} cannot be read: {said}"
            ) from error

    def _repeats(self, trainer: Trainer) -> bool:
        """Return whether an environment of the evaluation repeats itself.

        Without evaluation none is made for this: there may be a single one, such as a robot. A resume will show it.
        """
        if trainer.evaluator is None or not self.config.evaluation.every:
            return True
        try:
            return trainer.evaluator.repeats(self.config.seed)
        except CannotCopyError:
            return True

    def attach(
        self,
        trainer: Trainer,
        sinks: Sequence[Sink],
        callbacks: Sequence[Callback],
        say: Callable[[str], None] = lambda line: None,
    ) -> list[str]:
        """Open the log files at the trainer's step and connect them to it; return problems with them."""
        step, path, self.say = trainer.progress.step, self.directory.path, say
        there = self.store.state.get("files", dict.fromkeys(FILES))
        self.lines = {name: Lines(path / file, there[name]) for name, file in FILES.items()}
        if not self.lines["monitor"].size:
            self.lines["monitor"].write("#" + json.dumps({"t_start": self.started, "env_id": self.config.env}))
            self.lines["monitor"].write("r,l,t")
        self.evaluations = EvaluationFile(path, self.store.state.get("evaluations"))
        self.sinks = [JsonLinesSink(self.lines["metrics"], self.lines["timing"])]
        self.sinks += [*trackers(self.config, path, step, say), *sinks]
        trainer.hooks = Hooks(
            sinks=self.sinks,
            callbacks=callbacks,
            episode_finished=self._episode_finished,
            evaluated=self._evaluated,
            save=lambda checkpoint: self._save(checkpoint, trainer),
        )
        for part in (trainer.evaluator, trainer.bias_meter):
            if part is not None:
                part.say = say
        problems = [lines.problem for lines in self.lines.values()] + [self.evaluations.problem]
        return [problem for problem in problems if problem]

    def close(self) -> None:
        """Close all files."""
        for sink in self.sinks:
            sink.close()
        if "monitor" in self.lines:
            self.lines["monitor"].close()

    def _episode_finished(self, score: float, length: int) -> None:
        self.lines["monitor"].write(f"{score:.6f},{length},{time.time() - self.started:.6f}")

    def _evaluated(self, step: int, evaluation: Evaluation) -> None:
        self.directory.check_held()
        self.evaluations.add(step, evaluation.returns, evaluation.lengths)

    def _save(self, checkpoint: Checkpoint, trainer: Trainer) -> None:
        self.directory.check_held()
        checkpoint.state["config"] = self.config.model_dump(mode="json")
        checkpoint.state["files"] = {name: lines.fingerprint() for name, lines in self.lines.items()}
        checkpoint.state["evaluations"] = self.evaluations.state()
        first = not self.store.segments
        self.store.save(checkpoint, trainer.replay)
        if first and self.config.resume == "exact" and not self._repeats(trainer):
            self.say(DOES_NOT_REPEAT)  # only now: before the first checkpoint there is nothing to resume


def check_same(config: Config, checkpoint: Checkpoint, path: Path) -> None:
    """Refuse settings other than those that the checkpoint was made with."""
    if changed := differences(validated(checkpoint.state["config"]), config):
        raise UserError(
            f"the checkpoint in {path} was made with other settings ({'; '.join(changed)}): "
            f"{records.CONFIG} was changed since"
        )
