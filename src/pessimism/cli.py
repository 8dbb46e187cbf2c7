"""The command line. Heavy modules are imported by the command that needs them."""

import argparse
import sys
from argparse import RawDescriptionHelpFormatter as RawText
from collections.abc import Callable, Sequence
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

from rich.table import Table

from pessimism.config.resolve import OUT, parse_axes, parse_options, resolved
from pessimism.config.settings import MOST, MOST_THREADS
from pessimism.errors import UserError
from pessimism.listing import overview, settings_table
from pessimism.terminal import BROKEN_PIPE, Terminal, announced, discard_output

INTERRUPTED = 130  # as a shell reports SIGINT
MOST_SEEDS = 10_000  # of a sweep
TRUST = "import the module that a file names for its environment (module:Name-v0)"

if TYPE_CHECKING:
    from pessimism.experiments.suites.suite import Suite
    from pessimism.experiments.sweep.launch import Resources

ABOUT = "Sample-efficient reinforcement learning for continuous control, with a meter for the critics' bias."
FIRST_STEPS = """first steps:
  pessimism train sac --env Pendulum-v1 --steps 5000     train; run it again to resume
  pessimism eval runs/sac/Pendulum-v1/seed_0             returns of the trained agent
  pessimism bias runs/sac/Pendulum-v1/seed_0             predicted against observed returns
  pessimism report runs                                  a page about all runs
  pessimism COMMAND --help                               the options of a command"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; a mistake in it ends with one line and exit code 2."""
    try:
        parsed, rest = _parser().parse_known_args(arguments)
        command: Callable[[argparse.Namespace, list[str]], int] = parsed.command
        code = command(parsed, rest)
        sys.stdout.flush()
        return BROKEN_PIPE if Terminal.closed else code
    except UserError as error:
        print(f"pessimism: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("pessimism: interrupted", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:  # such as `pessimism list | head`: the reader has closed the pipe
        discard_output()
        return BROKEN_PIPE


class _Parser(argparse.ArgumentParser):
    """An argument parser that reports a mistake in one line."""

    def error(self, message: str) -> NoReturn:
        """Raise instead of printing the usage."""
        raise UserError(f"{message}; see {self.prog} --help")


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="pessimism", description=ABOUT, epilog=FIRST_STEPS, allow_abbrev=False, formatter_class=RawText
    )
    parser.add_argument("--version", action="version", version=f"pessimism {metadata.version('pessimism')}")
    commands = parser.add_subparsers(metavar="COMMAND", required=True, parser_class=_Parser)
    for name, command in COMMANDS.items():
        sub = commands.add_parser(
            name, help=command.text, description=command.text, allow_abbrev=False, **command.extra
        )
        sub.set_defaults(command=command.run)
        for names, settings in command.options:
            sub.add_argument(*names, **settings)
    return parser


def _whole(least: int, most: int) -> Callable[[str], int]:
    """Return a function that reads a whole number in a range."""

    def read(text: str) -> int:
        if not (text.lstrip("-").isdecimal() and least <= int(text[:30]) <= most):
            raise argparse.ArgumentTypeError(f"{text[:60]} is not a whole number from {least} to {most}")
        return int(text)

    return read


def _seconds(text: str) -> float:
    """Return a time."""
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 < seconds < 1e7:
        raise argparse.ArgumentTypeError(f"{text} is not a number of seconds")
    return seconds


def _seeds(text: str) -> list[int]:
    """Return the seeds of `5` (0 to 4) or `5-9`."""
    first, dash, last = text.partition("-")
    try:
        seeds = range(int(first), int(last) + 1) if dash else range(int(first))
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text} is neither a number of seeds nor a range such as 5-9") from None
    if not seeds:
        hint = f"{last}-{first}" if dash else "1 or more"
        raise argparse.ArgumentTypeError(f"{text} contains no seed: did you mean {hint}?")
    if seeds[-1] - seeds[0] >= MOST_SEEDS:
        count = seeds[-1] - seeds[0] + 1
        raise argparse.ArgumentTypeError(f"{text} is {count} seeds: {MOST_SEEDS} is the most")
    return list(seeds)


def _say(line: str) -> None:
    print(f"pessimism: {line}", file=sys.stderr)


def _no_more(rest: list[str]) -> None:
    if rest:
        raise UserError(f"unexpected {rest[0]}; see pessimism --help")


def _train(parsed: argparse.Namespace, rest: list[str]) -> int:
    if parsed.wants_help or parsed.algorithm is None:
        return _train_help(parsed.algorithm or "gpl-sac")
    asked, out = parse_options(rest, trust_env=parsed.trust_env)
    config = resolved(parsed.algorithm, asked)

    console = Terminal()
    with announced(console, "loading torch"):
        from pessimism.training.run import run

    return 0 if run(config, out, console=console).finished else INTERRUPTED


def _train_help(algorithm: str) -> int:
    console = Terminal()
    console.print(
        "usage: pessimism train ALGORITHM --env ID [--out DIR] [--config FILE] [--SETTING VALUE ...]\n"
        "\nTrain an agent. The same command resumes an interrupted run.\n"
        "FILE is YAML with the settings below; options on the command line override it.\n",
        highlight=False,
        markup=False,
        soft_wrap=True,
    )
    console.print(settings_table(algorithm, options=True))
    return 0


def _list(parsed: argparse.Namespace, rest: list[str]) -> int:
    _no_more(rest)
    Terminal().print(*([settings_table(parsed.algorithm)] if parsed.algorithm else overview()))
    return 0


def _evaluate(parsed: argparse.Namespace, rest: list[str]) -> int:
    _no_more(rest)
    from pessimism.training.evaluate import Evaluator
    from pessimism.training.run import load_run

    assembly, step = load_run(parsed.run, trust_env=parsed.trust_env, say=_say)
    limit = assembly.config.evaluation.limit
    evaluator = Evaluator(assembly.make_env, parsed.episodes, parsed.seed, limit, _say)
    metrics = evaluator(assembly.agent, step).metrics()
    print(f"{assembly.config.algorithm} on {assembly.config.env} after {step} steps, {parsed.episodes} episodes")
    print(f"return {metrics['eval/mean_reward']:.1f} +- {metrics['eval/std_reward']:.1f}", end=", ")
    print(f"length {metrics['eval/mean_ep_length']:.0f}")
    return 0


def _bias(parsed: argparse.Namespace, rest: list[str]) -> int:
    _no_more(rest)
    from pessimism.training.bias import BiasMeter
    from pessimism.training.run import load_run

    assembly, step = load_run(parsed.run, trust_env=parsed.trust_env, say=_say)
    config = assembly.config
    episodes = assembly.make_env, parsed.episodes, parsed.seed, config.bias.limit, _say
    meter = BiasMeter(*episodes, tail=config.bias.tail, discount=config.discount)
    bias = meter(assembly.agent, step)
    print(
        f"{config.algorithm} on {config.env} after {step} steps, {bias.states} states of {parsed.episodes} episodes"
    )
    print(f"predicted {bias.value:.2f}, observed {bias.soft_return:.2f} (soft returns)")
    print(f"bias {bias.mean:+.2f} +- {bias.std:.2f}", end=", ")
    print(f"normalised {bias.normalized_mean:+.3f} +- {bias.normalized_std:.3f}")
    if bias.bootstrapped:
        print(f"{bias.bootstrapped:.0%} of the states end in the critics' own estimate: episodes are short")
    return 0


def _plot(parsed: argparse.Namespace, rest: list[str]) -> int:
    _no_more(rest)
    from pessimism.analysis.curves import plot_run

    print(plot_run(parsed.run))
    return 0


def _report(parsed: argparse.Namespace, rest: list[str]) -> int:
    _no_more(rest)
    if parsed.watch:
        from pessimism.analysis.report.watch import serve

        serve(parsed.directories, parsed.port, lambda text: print(text, flush=True))
        return 0
    from pessimism.analysis.report import write_and_sum_up

    lines, page = write_and_sum_up(parsed.directories, parsed.out or parsed.directories[0] / "report")
    print(*lines, page, sep="\n")
    return 0


def _compare(parsed: argparse.Namespace, rest: list[str]) -> int:
    _no_more(rest)
    from pessimism.analysis.compare import compare

    Terminal().print(compare(parsed.runs))
    return 0


def _video(parsed: argparse.Namespace, rest: list[str]) -> int:
    _no_more(rest)
    from pessimism.tools.video import film

    print(film(parsed.run, trust_env=parsed.trust_env))
    return 0


def _export(parsed: argparse.Namespace, rest: list[str]) -> int:
    _no_more(rest)
    from pessimism.training.export import export_policy
    from pessimism.training.run import load_run

    assembly, _ = load_run(parsed.run, trust_env=parsed.trust_env, say=_say)
    print(export_policy(assembly.agent, assembly.trainer.env, parsed.file))
    return 0


def _dataset(parsed: argparse.Namespace, rest: list[str]) -> int:
    _no_more(rest)
    from pessimism.tools.dataset import write_dataset

    print(write_dataset(parsed.run, parsed.target, trust_env=parsed.trust_env, say=_say))
    return 0


def _doctor(parsed: argparse.Namespace, rest: list[str]) -> int:
    _no_more(rest)
    from pessimism.tools.doctor import examine

    return examine(Terminal())


def _bench(parsed: argparse.Namespace, rest: list[str]) -> int:
    _no_more(rest)
    from pessimism.bench import run_backbones, run_paper, run_pixels, run_speed
    from pessimism.bench.shares import run_shares

    if parsed.paper:
        run_paper(seconds=parsed.seconds, threads=parsed.threads, json_path=parsed.json)
    elif parsed.pixels:
        run_pixels(seconds=parsed.seconds, threads=parsed.threads, json_path=parsed.json)
    elif parsed.shares:
        run_shares(json_path=parsed.json)
    elif parsed.backbones:
        peers = None if parsed.no_peers else parsed.peers
        run_backbones(seconds=parsed.seconds, threads=parsed.threads, peers=peers, json_path=parsed.json)
    else:
        peers = None if parsed.no_peers else parsed.peers
        run_speed(seconds=parsed.seconds, threads=parsed.threads, peers=peers, json_path=parsed.json)
    return 0


def _demo(parsed: argparse.Namespace, rest: list[str]) -> int:
    _no_more(rest)
    from pessimism.tools.demo import demo

    return demo(parsed.seed, parsed.out, Terminal())


def _reproduce(parsed: argparse.Namespace, rest: list[str]) -> int:
    from pessimism.experiments.suites.catalogue import find

    if parsed.list or parsed.suite is None:
        _no_more(rest)
        return _list_suites()
    return _run_suite(find(parsed.suite), parsed, rest, reported=True)


def _list_suites() -> int:
    from pessimism.experiments.suites.catalogue import ALL

    table = Table("suite", "paper", "runs", "claim", title="the paper's experiments, and our own")
    for suite in ALL:
        runs = len(suite.variants) * len(suite.tasks) * len(suite.seeds)
        table.add_row(suite.name, suite.paper or "(ours)", str(runs), suite.claim)
    Terminal().print(table)
    return 0


def _run_suite(suite: "Suite", parsed: argparse.Namespace, rest: list[str], reported: bool) -> int:
    from pessimism.experiments.reproduce import reproduce
    from pessimism.experiments.suites.shrink import shrunk
    from pessimism.experiments.suites.suite import jobs

    tasks = [env for text in parsed.env for env in text.split(",")]
    changes = {name: _only(name, values) for name, values in parse_axes(rest).items()}
    small = shrunk(suite, seeds=parsed.seeds, steps=parsed.steps, envs=tasks, scale=parsed.scale, changes=changes)
    found = jobs(small, shared=parsed.out is None)  # an --out holds everything that it shows
    root = parsed.out or Path("runs") / small.folder
    return reproduce(small, found, root, _resources(parsed), Terminal(), planned=parsed.plan, reported=reported)


def _only(name: str, values: list[Any]) -> Any:  # noqa: ANN401
    if len(values) != 1:
        raise UserError(f"--{name.replace('_', '-')} takes one value with a suite, which is a grid already")
    return values[0]


def _resources(parsed: argparse.Namespace) -> "Resources":
    from pessimism.experiments.sweep.launch import Resources

    return Resources(parsed.workers, parsed.threads, parsed.ray)


def _sweep(parsed: argparse.Namespace, rest: list[str]) -> int:
    from pessimism.experiments.suites.catalogue import SUITES
    from pessimism.experiments.suites.grid import grid, grid_suite

    if parsed.names[0] in SUITES:
        _no_more(parsed.names[1:])
        return _run_suite(SUITES[parsed.names[0]], parsed, rest, reported=False)
    if parsed.scale != 1:
        raise UserError("--scale is for a suite of the paper: give --steps, --random-steps and so on instead")
    axes = parse_axes(rest) | ({"steps": [parsed.steps]} if parsed.steps is not None else {})
    tasks = [env for text in parsed.env for env in text.split(",")]
    jobs = grid(parsed.names, tasks, parsed.seeds or range(5), axes)
    root = parsed.out or Path("runs") / "sweep"
    from pessimism.experiments.reproduce import reproduce

    suite = grid_suite(root.name, jobs)
    return reproduce(suite, jobs, root, _resources(parsed), Terminal(), planned=parsed.plan, reported=False)


class Command(NamedTuple):
    """A command of the command line."""

    run: Callable[[argparse.Namespace, list[str]], int]  # given what was parsed, and what was not
    text: str
    options: Sequence[tuple[tuple[str, ...], dict[str, Any]]] = ()
    extra: dict[str, Any] = {}  # noqa: RUF012 (read only): further arguments of its parser


def _option(*names: str, **settings: Any) -> tuple[tuple[str, ...], dict[str, Any]]:  # noqa: ANN401
    return names, settings


RUN = _option("run", type=Path, help="directory of the run")
TRAINED = (RUN, _option("--trust-env", action="store_true", help=TRUST))
EPISODES = (
    _option("--episodes", type=_whole(1, 10_000), default=10, help="episodes to run (10)"),
    _option("--seed", type=_whole(0, MOST), default=0, help="seed of the episodes (0)"),
)
MANY_RUNS = (
    _option("--env", "--envs", nargs="+", action="extend", default=[], help="tasks (a suite's own)"),
    _option("--seeds", type=_seeds, default=None, help="how many, or a range such as 5-9 (5)"),
    _option("--steps", type=_whole(1, MOST), default=None, help="train a suite's first steps only"),
    _option("--scale", type=float, default=1.0, help="a suite in miniature: steps, phases, periods (1)"),
    _option("--plan", action="store_true", help="estimate time and disk by measuring this machine; start nothing"),
    _option("--workers", type=_whole(1, MOST_THREADS), default=None, help="runs at a time (the cores)"),
    _option(
        "--threads", type=_whole(1, MOST_THREADS), default=None, help="of each run (cores / workers; 1 with --ray)"
    ),
    _option("--ray", metavar="ADDRESS", default=None, help="use the Ray cluster there; local: one here"),
    _option(OUT, type=Path, default=None, help="directory of the runs (runs/NAME)"),
)
COMMANDS = {
    "train": Command(
        _train,
        "train an agent; the same command resumes an interrupted run",
        (
            _option("algorithm", nargs="?", help="see pessimism list"),
            _option("--trust-env", action="store_true", help=TRUST),
            _option("-h", "--help", action="store_true", dest="wants_help"),
        ),
        {"add_help": False},
    ),
    "eval": Command(_evaluate, "deterministic episodes of a run's newest checkpoint", (*TRAINED, *EPISODES)),
    "bias": Command(
        _bias,
        "measure the bias of a run's critics: predicted against observed soft returns",
        (*TRAINED, *EPISODES),
    ),
    "plot": Command(_plot, "draw return, beta and measured bias of a run", (RUN,)),
    "video": Command(_video, "film a run's newest checkpoint", TRAINED),
    "export": Command(
        _export,
        "write a run's policy as an ONNX file, which runs without torch",
        (*TRAINED, _option("file", type=Path, help="the file to write, such as policy.onnx")),
    ),
    "dataset": Command(
        _dataset,
        "write a run's replay as a data set, which --prior of train takes",
        (
            *TRAINED,
            _option("target", metavar="OUT", help="a file out.npz, a directory, or minari:ID (extra: minari)"),
        ),
    ),
    "report": Command(
        _report,
        "one page about runs: curves, bias, statistics, the paper's numbers beside them",
        (
            _option("directories", nargs="+", type=Path, metavar="DIR", help="runs, or directories of runs"),
            _option(OUT, type=Path, default=None, help="where the report goes (report/ in the first DIR)"),
            _option("--watch", action="store_true", help="serve the page on localhost, updated while runs train"),
            _option("--port", type=_whole(0, 65_535), default=8080, help="with --watch: port; 0 for any (8080)"),
        ),
    ),
    "compare": Command(
        _compare,
        "curves and numbers of several runs beside each other, in the terminal",
        (_option("runs", nargs="+", type=Path, metavar="RUN", help="runs, or directories of runs"),),
    ),
    "list": Command(
        _list,
        "algorithms, their settings and tasks",
        (_option("algorithm", nargs="?", help="show all settings of this one, with their sources"),),
    ),
    "doctor": Command(_doctor, "what is installed, and how fast this machine is"),
    "demo": Command(
        _demo,
        "train GPL-SAC on a MuJoCo task in about a minute, with curve and video",
        (
            _option("--seed", type=_whole(0, MOST), default=0, help="seed (0)"),
            _option(OUT, type=Path, default=None, help="directory of the run (runs/demo/seed_N)"),
        ),
    ),
    "bench": Command(
        _bench,
        "time an update against SBX, SB3 and the limit of this machine",
        (
            _option("--paper", action="store_true", help="the paper's table of training times instead"),
            _option("--pixels", action="store_true", help="updates from pixels against DrQ-v2's style instead"),
            _option("--backbones", action="store_true", help="every preset on states against each other instead"),
            _option("--shares", action="store_true", help="where the time of a real run goes instead"),
            _option("--json", type=Path, default=None, help="also write the figures to this file"),
            _option(
                "--peers", type=Path, default=Path(".venv-peers"), help="environment of the peers (.venv-peers)"
            ),
            _option("--no-peers", action="store_true", help="leave SBX and SB3 out"),
            _option("--seconds", type=_seconds, default=210.0, help="time of all blocks together (210)"),
            _option("--threads", type=_whole(1, MOST_THREADS), default=None, help="threads of each (all cores)"),
        ),
    ),
    "reproduce": Command(
        _reproduce,
        "a figure or table of the paper: its runs, then their report",
        (
            _option("suite", nargs="?", help="see --list"),
            _option("--list", action="store_true", help="show all figures and tables, and their claims"),
            *MANY_RUNS,
        ),
        {"epilog": "further --SETTING VALUE pairs (see train --help) change all runs, and the output says so"},
    ),
    "sweep": Command(
        _sweep,
        "many runs at once: a suite of the paper, or algorithms x tasks x seeds x settings",
        (_option("names", nargs="+", help="a suite (see reproduce --list), or algorithms"), *MANY_RUNS),
        {"epilog": "further --SETTING V1,V2,... are the grid's axes (see train --help); --config FILE sets others"},
    ),
}
