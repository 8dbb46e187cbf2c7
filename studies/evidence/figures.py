"""Make tables and pictures of docs/results.md from the CSV files of collect.py.

    python studies/evidence/figures.py                      # blocks of which all arms have reached 20,000 steps
    python studies/evidence/figures.py --until 10000        # a look at what there is so far

A block is one seed of all arms on one task. Measures and their intervals are those of the protocol.
"""

from pathlib import Path

import numpy as np
from blocks import DATA, UNTIL, Array, Evidence, Scores
from drawing import COLOURS, SIGNALS, SIGNALS_FROM, Beside, draw_curves, draw_minutes, draw_signals, draw_start

from pessimism.analysis.reference import curves_of
from pessimism.analysis.statistics import Sample, difference, interval, mean
from pessimism.tools.script import Parser, start

BIAS_FROM = 10_000
# Relative returns are those over this arm's: the first of these that a suite has.
BASES = ("fixed-0.5", "fixed", "rate-1e-4", "xqc-256", "gpl-sac")
CURVES = {  # suites whose return, bias and beta are drawn, and where
    "calibration": "calibration.png",
    "hopper-full": "hopper-full.png",
    "backbones": "backbones-bias.png",
}
BIAS, RETURN = "abs. normalised bias (primary 1)", "relative return (primary 2)"
END, FINAL = "abs. normalised bias, last 3 readings", "return, last 5000 steps"
OVER_REDQ = "return of the last 5000 steps over published REDQ's"


def shown(by_task: list[Array], form: str = ".2f") -> str:
    """Return the mean of scores, one array per task, with its interval; one seed per task gives no interval."""
    value = interval(mean, by_task)
    point = f"{value.point:{form}}"
    return (
        point
        if all(len(scores) == 1 for scores in by_task)
        else f"{point} [{value.low:{form}}, {value.high:{form}}]"
    )


def shown_difference(by_task: list[Array], form: str) -> str:
    """Return the mean of paired differences with the protocol's interval, and Student's t beside it.

    With three seeds the bootstrap's interval is too narrow.
    """
    student = difference(
        [Sample.of(scores) for scores in by_task], [Sample(0, 0, len(scores)) for scores in by_task]
    )
    return shown(by_task, form) + (
        "" if np.isnan(student.low) else f"; t [{student.low:{form}}, {student.high:{form}}]"
    )


def published_redq(task: str, step: int) -> float:
    """Return the mean return of REDQ's public curve at a step: a scale that no arm of ours has a part in."""
    curve = curves_of(task, "REDQ")[0]
    return float(np.interp(step, curve.steps, curve.means))


def measures(evidence: Evidence) -> dict[str, Scores]:
    """Return the measures of the protocol."""
    for row in evidence.rows:
        row["relative_bias"] = row["bias"] / max(abs(row["soft_return"]), 10.0)
    returns = evidence.scores("return", 0, absolute=False, lower_is_better=False)
    last = max(row["step"] for row in evidence.rows)
    final = evidence.scores("return", int(last) - 4000, absolute=False, lower_is_better=False)
    base = next(arm for arm in BASES if arm in evidence.arms)
    scale = {
        task: np.mean([returns[base][block] for block in evidence.blocks if block[0] == task])
        for task in evidence.tasks
    }
    relative = {
        arm: {block: score / scale[block[0]] for block, score in of_arm.items()} for arm, of_arm in returns.items()
    }
    bias = evidence.scores("normalized_bias", BIAS_FROM, absolute=True, lower_is_better=True)
    plain = evidence.scores("relative_bias", BIAS_FROM, absolute=True, lower_is_better=True)
    signed = evidence.scores("normalized_bias", BIAS_FROM, absolute=False, lower_is_better=True)
    end = evidence.scores("normalized_bias", int(last) - 2000, absolute=True, lower_is_better=True)
    published = {task: published_redq(task, int(last)) for task in evidence.tasks}
    over_redq = {
        arm: {block: score / published[block[0]] for block, score in of_arm.items()}
        for arm, of_arm in final.items()
    }
    return {
        BIAS: bias,
        RETURN: relative,
        "abs. relative bias": plain,
        "signed normalised bias": signed,
        END: end,
        FINAL: final,
        OVER_REDQ: over_redq,
    }


def rules_table(evidence: Evidence, found: dict[str, Scores]) -> str:
    """Return all measures of all arms over all tasks, then task by task."""
    counted = ", ".join(f"{task} {sum(block[0] == task for block in evidence.blocks)}" for task in evidence.tasks)
    lines = [f"Seeds: {counted}. Mean [95 % interval, from two seeds on].", ""]
    lines += [f"| rule | {' | '.join(found)} |", f"|---|{'---|' * len(found)}"]
    for arm, label in evidence.arms.items():
        cells = []
        for name, scores in found.items():
            form = ".0f" if name == FINAL else ".2f"
            cells.append(shown(evidence.by_task(scores[arm]), form))
        lines.append(f"| {label} | {' | '.join(cells)} |")
    lines += ["", f"| rule | {' | '.join(f'{task}: bias, return' for task in evidence.tasks)} |"]
    lines.append(f"|---|{'---|' * len(evidence.tasks)}")
    returns = evidence.scores("return", 0, absolute=False, lower_is_better=False)
    for arm, label in evidence.arms.items():
        bias = [values.mean() for values in evidence.by_task(found[BIAS][arm])]
        reward = [values.mean() for values in evidence.by_task(returns[arm])]
        lines.append(f"| {label} | {' | '.join(f'{b:.2f}, {r:.0f}' for b, r in zip(bias, reward, strict=True))} |")
    return "\n".join(lines)


def differences_table(evidence: Evidence, found: dict[str, Scores]) -> str:
    """Return paired differences: the same task and seed in two arms."""
    bases = [arm for arm in (*BASES, "dual-1e-4", "dual-1e-2") if arm in evidence.arms]
    compared = (END, FINAL) if evidence.suite.startswith("start-") else (BIAS, RETURN, OVER_REDQ)
    lines = ["Paired differences, with the bootstrap's 95 % interval and Student's t.", ""]
    lines += [f"| rule | minus | {' | '.join(compared)} |", f"|---|---|{'---|' * len(compared)}"]
    for arm, label in evidence.arms.items():
        for base in bases:
            if base == arm:
                continue
            cells = []
            for name in compared:
                scores, form = found[name], "+.0f" if name == FINAL else "+.2f"
                paired = {block: scores[arm][block] - scores[base][block] for block in evidence.blocks}
                cells.append(shown_difference(evidence.by_task(paired), form))
            lines.append(f"| {label} | {evidence.arms[base]} | {' | '.join(cells)} |")
    return "\n".join(lines)


def signals_table(evidence: Evidence) -> str:
    """Return how well each signal sees the meter's bias."""
    lines = ["| task | signal | readings | same sign | correlation | slope |", "|---|---|---|---|---|---|"]
    for task in [*evidence.tasks, "all"]:
        for signal, label in SIGNALS.items():
            pairs = np.array(
                [
                    (row[signal], row["bias"])
                    for row in evidence.rows
                    if task in (row["task"], "all")
                    and row["step"] >= SIGNALS_FROM
                    and not np.isnan(row[signal] + row["bias"])
                ]
            )
            if len(pairs) < 3:
                continue
            same = np.mean(np.sign(pairs[:, 0]) == np.sign(pairs[:, 1]))
            covariance = np.cov(pairs.T)
            correlation = covariance[0, 1] / np.sqrt(covariance[0, 0] * covariance[1, 1])
            slope = covariance[0, 1] / covariance[0, 0]
            lines.append(f"| {task} | {label} | {len(pairs)} | {same:.0%} | {correlation:+.2f} | {slope:+.3g} |")
    return "\n".join(lines)


def returns_table(evidence: Evidence) -> str:
    """Return each arm's returns on its way and the minutes that it took, of the runs that are finished."""
    ends = range(10_000, evidence.until + 1, 10_000)
    columns = [f"return, {end - 4000:,} to {end:,}" for end in ends]
    lines = [f"| task | arm | seeds | {' | '.join(columns)} | minutes of one core |"]
    lines.append(f"|---|---|---|{'---|' * len(ends)}---|")
    for task in evidence.tasks:
        for arm, label in evidence.arms.items():
            curves = evidence.finished(arm, task)
            if not curves:
                continue
            cells = []
            for end in ends:
                near = [(curve["step"] > end - 5000) & (curve["step"] <= end) for curve in curves]
                means = [np.mean(curve["return"][mask]) for curve, mask in zip(curves, near, strict=True)]
                cells.append(shown([np.array(means)], ".0f"))
            minutes = np.mean([curve["processor"][-1] for curve in curves]) / 60
            lines.append(f"| {task} | {label} | {len(curves)} | {' | '.join(cells)} | {minutes:.0f} |")
    return "\n".join(lines)


def gpl_sac_elsewhere(data: Path) -> list[Beside]:
    """Return GPL-SAC's runs of other suites: at the paper's size, and with fewer critics and updates."""
    full = Evidence("hopper-full", data, UNTIL["hopper-full"], begun=True)
    half = Evidence("calibration", data, UNTIL["calibration"], begun=True)
    return [
        Beside(full, "gpl-sac", "GPL-SAC", COLOURS[-1]),
        Beside(half, "dual-1e-4", "GPL-SAC, 5 critics, 5 updates", COLOURS[-2]),
    ]


def report(suite: str, data: Path, out: Path, until: int) -> list[str]:
    """Return a suite's tables, of its complete blocks, and draw its pictures."""
    evidence = Evidence(suite, data, until)
    text = [f"## {suite}, to {until:,} steps: {len(evidence.blocks)} complete blocks"]
    if suite == "backbones":  # an arm's runs count as soon as they are finished
        begun = Evidence(suite, data, until, begun=True)
        text.append(returns_table(begun))
        draw_minutes(begun, gpl_sac_elsewhere(data), out / f"{suite}.png")
    if not evidence.blocks:
        return text
    found = measures(evidence)
    text += [rules_table(evidence, found), differences_table(evidence, found), signals_table(evidence)]
    if suite.startswith("start-"):
        draw_start(evidence, out / f"{suite}.png")
    if suite in CURVES:
        draw_curves(evidence, out / CURVES[suite])
    if suite == "calibration":
        draw_signals(evidence, out / f"{suite}-signals.png")
    return text


def first_look(suite: str, data: Path, out: Path, until: int) -> list[str]:
    """Return the table of a suite's signals, from all runs that have begun, and draw them."""
    begun = Evidence(suite, data, until, begun=True)
    draw_signals(begun, out / f"{suite}-first-look.png")
    return [signals_table(begun)]


def main() -> None:
    """Print the tables and draw the pictures of each suite of which there is something."""
    parser = Parser(__doc__)
    parser.add_argument("--data", type=Path, default=DATA, help="directory of the CSV files")
    parser.add_argument("--out", type=Path, default=DATA.parent, help="where tables.md and the pictures go")
    parser.add_argument("--until", type=int, help="steps that count (default: by suite, 15000 to 30000)")
    parser.add_argument(
        "--first-look", action="store_true", help="only the signals, from all runs that have begun, complete or not"
    )
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    text = []
    for suite, until in UNTIL.items():
        if (args.data / f"{suite}.csv").exists():
            make = first_look if args.first_look else report
            text += make(suite, args.data, args.out, args.until or until)
    if not args.first_look:
        (args.out / "tables.md").write_text("\n\n".join(text) + "\n")
    print("\n\n".join(text))


if __name__ == "__main__":
    start(main)
