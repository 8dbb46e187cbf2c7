"""Everything that a run writes into its directory, and how it goes on from there."""

import json
import time
from collections.abc import Sequence

from pessimism import records
from pessimism.config import Config
from pessimism.training.checkpoint import Checkpoint, CheckpointStore
from pessimism.training.directory import RunDirectory
from pessimism.training.evaluate import Evaluation
from pessimism.training.loop import Callback, Hooks, Trainer
from pessimism.training.sinks import EvaluationFile, JsonLinesSink, Lines, Sink, TensorBoardSink, WandbSink

FILES = {"metrics": records.METRICS, "timing": records.TIMING, "monitor": records.MONITOR}


class Recorder:
    """Logs and checkpoints of one run. After a restart each file continues from the checkpoint's position."""

    def __init__(self, directory: RunDirectory, config: Config) -> None:
        self.directory, self.config = directory, config
        self.store = CheckpointStore(directory.path, config.checkpoint.keep)
        self.lines: dict[str, Lines] = {}
        self.sinks: list[Sink] = []
        self.started = time.time()

    def resume(self, trainer: Trainer) -> tuple[int, list[str]]:
        """Bring the trainer to the newest whole checkpoint; return its step and a line for each torn one."""
        checkpoint, torn = self.store.load(trainer.replay)
        if checkpoint:
            trainer.restore(checkpoint)
        return checkpoint.step if checkpoint else 0, torn

    def attach(self, trainer: Trainer, sinks: Sequence[Sink], callbacks: Sequence[Callback]) -> None:
        """Open the files where the trainer is, and let it report to them."""
        step, path = trainer.progress.step, self.directory.path
        positions = self.store.state.get("files", dict.fromkeys(FILES, 0))
        self.lines = {name: Lines(path / file, positions[name]) for name, file in FILES.items()}
        if not positions["monitor"]:
            self.lines["monitor"].write("#" + json.dumps({"t_start": self.started, "env_id": self.config.env}))
            self.lines["monitor"].write("r,l,t")
        self.evaluations = EvaluationFile(path, step)
        self.sinks = [JsonLinesSink(self.lines["metrics"], self.lines["timing"])]
        if self.config.log.tensorboard:
            self.sinks.append(TensorBoardSink(path / records.TENSORBOARD, step))
        if self.config.log.wandb:
            self.sinks.append(WandbSink(self.config.log.wandb, path, self.config.model_dump()))
        self.sinks += sinks
        trainer.hooks = Hooks(
            sinks=self.sinks,
            callbacks=callbacks,
            episode_finished=self._episode_finished,
            evaluated=self._evaluated,
            save=lambda checkpoint: self._save(checkpoint, trainer),
        )

    def close(self) -> None:
        """Let go of all files."""
        for sink in self.sinks:
            sink.close()
        if "monitor" in self.lines:
            self.lines["monitor"].close()

    def _episode_finished(self, score: float, length: int) -> None:
        self.lines["monitor"].write(f"{score:.6f},{length},{time.time() - self.started:.6f}")

    def _evaluated(self, step: int, evaluation: Evaluation) -> None:
        self.evaluations.add(step, evaluation.returns, evaluation.lengths)

    def _save(self, checkpoint: Checkpoint, trainer: Trainer) -> None:
        checkpoint.state["files"] = {name: lines.position() for name, lines in self.lines.items()}
        self.store.save(checkpoint, trainer.replay)
