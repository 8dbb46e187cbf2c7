"""Tune a few settings with Optuna; hopeless trials are stopped early.

python examples/tune.py --env Pendulum-v1 --trials 20 --steps 5000

A trial is one training. After each evaluation the callback reports the return to Optuna, and stops the training
when Optuna's pruner finds it worse than most others at the same step. Repeat the command to add trials: they are
kept in the file of --storage.
"""

import argparse

import optuna

from pessimism import GPLSAC, Callback


class Pruning(Callback):
    """Reports every evaluation to a trial, and stops the training where the trial is pruned."""

    def __init__(self, trial: optuna.Trial) -> None:
        self.trial, self.score, self.pruned = trial, float("-inf"), False

    def on_metrics(self, step: int, metrics: dict[str, float]) -> None:
        """Report the return of an evaluation."""
        if "eval/mean_reward" in metrics:
            self.score = metrics["eval/mean_reward"]
            self.trial.report(self.score, step)
            self.pruned = self.trial.should_prune()

    def on_step(self, progress: object) -> bool:
        """Stop at the next step."""
        return not self.pruned


def arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--env", default="Pendulum-v1", help="Gymnasium id, or module:Name-v0")
    parser.add_argument("--trials", type=int, default=20)
    parser.add_argument("--steps", type=int, default=5000, help="environment steps of a trial")
    parser.add_argument("--hidden", type=int, default=64, help="width of the networks")
    parser.add_argument("--storage", default="sqlite:///tuning.db", help="where Optuna keeps the trials")
    return parser.parse_args()


def main() -> optuna.Study:
    """Run the trials and print the best."""
    args = arguments()

    def trained(trial: optuna.Trial) -> float:
        follower = Pruning(trial)
        agent = GPLSAC(
            args.env,
            seed=trial.number,
            random_steps=args.steps // 10,
            hidden=args.hidden,
            lr=trial.suggest_float("lr", 1e-4, 3e-3, log=True),
            updates_per_step=trial.suggest_categorical("updates_per_step", [1, 2, 4]),
            critic={"members": trial.suggest_int("members", 2, 6), "hidden": args.hidden},
            pessimism={"beta": trial.suggest_float("beta", 0.0, 1.0)},
            evaluation={"every": args.steps // 5},
            bias={"every": 0},
        )
        agent.learn(args.steps, follower)
        if follower.pruned:
            raise optuna.TrialPruned
        return follower.score

    study = optuna.create_study(
        study_name=args.env,
        storage=args.storage,
        load_if_exists=True,
        direction="maximize",
        pruner=optuna.pruners.MedianPruner(n_startup_trials=3),
    )
    study.optimize(trained, n_trials=args.trials)
    print(f"best return {study.best_value:.1f} with {study.best_params}")
    return study


if __name__ == "__main__":
    main()
