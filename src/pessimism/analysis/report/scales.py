"""What returns are divided by, so that tasks can be averaged."""

import numpy as np

from pessimism.analysis import statistics
from pessimism.analysis.reference import paper_scores, task_key
from pessimism.analysis.report.series import cell
from pessimism.analysis.report.study import Study
from pessimism.config.tasks import task_name


def normaliser(task: str) -> float | None:
    """Return what the paper divides a task's return by."""
    env = task.partition(" (")[0]
    if task_name(env) in statistics.SAC_AT_3M:
        return statistics.SAC_AT_3M[task_name(env)]
    suite = {task_key(score.task) for score in paper_scores() if score.table != "gym_100k"}
    return statistics.CONTROL_SUITE if task_key(env) in suite else None


def scale_of(study: Study, task: str, milestone: int) -> float:
    """Return the paper's scale of a task, else the largest mean return of a series there."""
    if (published := normaliser(task)) is not None:
        return published
    scores = [cell(study, label, task, milestone).scores for label in study.labels]
    return max((abs(float(np.mean(own))) for own in scores if len(own)), default=0.0) or 1.0
