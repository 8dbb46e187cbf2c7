"""Prior data: what is read and what is refused, exact resume, and what learning gains by them."""

import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

from pessimism import GPLRLPD, Algorithm, Callback, UserError
from pessimism.cli import main
from pessimism.config.resolve import merge, parse_axes, parse_options, preset_values, validated
from pessimism.envs.toys import Constant, Line, factory
from pessimism.tools.dataset import write_dataset
from pessimism.training import resources
from pessimism.training.prior import read_prior
from pessimism.training.run import assemble, load_run, run
from sameness import assert_same_run

LINE = "pessimism.envs.toys:pessimism-toys/Line-v0"
SMALL = {
    "env": LINE,
    "env_kwargs": {"max_episode_steps": 50},
    "steps": 90,
    "random_steps": 0,
    "updates_per_step": 2,
    "batch_size": 16,
    "hidden": 16,
    "critic": {"hidden": 16, "members": 3},
    "compile": False,
    "threads": 1,
    "evaluation": {"every": 50, "episodes": 1},
    "bias": {"every": 0},
    "checkpoint": {"every": 25},
    "log": {"every": 10, "tensorboard": False},
}


def played(episodes, env=None, seed=0):
    """Return random episodes on the line as arrays."""
    env, random = env or Line(length=20, falls=True), np.random.default_rng(seed)
    steps = []
    for number in range(episodes):
        obs, over = env.reset(seed=seed + number)[0], False
        while not over:
            action = random.uniform(-1, 1, 1).astype(np.float32)
            after, reward, terminated, truncated, _ = env.step(action)
            steps.append((obs, action, reward, terminated, truncated, after))
            obs, over = after, terminated or truncated
    names = ("observations", "actions", "rewards", "terminations", "truncations", "next_observations")
    return {name: np.array(column) for name, column in zip(names, zip(*steps, strict=True), strict=True)}


def config(preset="gpl-rlpd", **changes):
    return validated(merge(merge(preset_values(preset), SMALL), changes))


def read(*names):
    return read_prior(names, factory(Line)())


# --- what is read ---


def test_an_npz_file_is_read_as_it_was_written():
    arrays = played(4)
    np.savez("prior.npz", **arrays)
    steps = read("prior.npz")
    assert np.array_equal(steps.obs, arrays["observations"])
    assert np.array_equal(steps.next_obs, arrays["next_observations"])
    assert np.array_equal(steps.action, arrays["actions"])
    assert np.array_equal(steps.reward, arrays["rewards"])
    assert np.array_equal(steps.terminated, arrays["terminations"])
    assert np.array_equal(steps.ended, arrays["terminations"] | arrays["truncations"])
    assert 0 < steps.terminated.sum() < steps.ended.sum() == 4


def test_d4rls_names_and_numbers_in_the_place_of_truth_values():
    arrays = played(3)
    np.savez("prior.npz", **arrays)
    arrays["terminals"] = arrays.pop("terminations").astype(np.float32)
    arrays["timeouts"] = arrays.pop("truncations").astype(np.int64)[:, None]
    np.savez("d4rl.npz", **arrays)
    assert read("prior.npz").checksum == read("d4rl.npz").checksum


def test_without_truncations_an_episode_ends_where_the_states_do_not_follow_each_other():
    arrays = played(3)
    np.savez("prior.npz", **arrays)
    del arrays["truncations"]
    np.savez("without.npz", **arrays)
    assert read("prior.npz").checksum == read("without.npz").checksum


def test_several_sources_follow_each_other_and_their_last_steps_end_an_episode():
    for seed in (0, 1):
        np.savez(f"{seed}.npz", **{name: array[:7] for name, array in played(1, Line(), seed).items()})
    steps = read("0.npz", "1.npz")
    assert np.flatnonzero(steps.ended).tolist() == [6, 13]
    assert np.array_equal(steps.obs[7:], read("1.npz").obs)


def test_actions_are_in_the_environments_own_units():
    class Strong(Line):
        action_space = type(Line.action_space)(-3.0, 1.0, (1,), np.float32)

    env, arrays = factory(Strong)(), played(1, Line())
    arrays["actions"] = env.scaled_batch(arrays["actions"])
    np.savez("prior.npz", **arrays)
    assert read_prior(["prior.npz"], env).action == pytest.approx(played(1, Line())["actions"], abs=1e-6)
    with pytest.raises(UserError, match="and Line takes -1 to 1$"):
        read("prior.npz")


def test_a_run_directory_and_the_data_set_written_from_it_hold_the_same_steps():
    task = {"env_kwargs": {"max_episode_steps": 15, "falls": True}}
    run(config("sac", random_steps=100, **task), Path("earlier"))
    written = write_dataset(Path("earlier"), "data.npz", trust_env=True)
    steps = read("earlier")
    assert (written.steps, written.terminated) == (90, int(steps.terminated.sum()))
    assert read("data.npz").checksum == steps.checksum
    lengths = [int(line.split(",")[1]) for line in Path("earlier/0.monitor.csv").read_text().splitlines()[2:]]
    ends = [*np.cumsum(lengths) - 1, 89]  # the last episode may be cut
    assert np.flatnonzero(steps.ended).tolist() == sorted(set(ends))
    assert 0 < steps.terminated.sum() < len(lengths)


def test_the_command_writes_a_directory_that_prior_takes(capsys):
    run(config("sac", random_steps=100, steps=30), Path("earlier"))
    assert main(["dataset", "earlier", "out/", "--trust-env"]) == 0
    assert "out/transitions.npz: 30 transitions of 1 episodes, 0 of them terminated" in capsys.readouterr().out
    assert read("out").checksum == read("earlier").checksum
    Path("file").touch()
    assert main(["dataset", "earlier", "file/out.npz", "--trust-env"]) == 2
    assert "cannot write file/out.npz: " in capsys.readouterr().err


def test_minari_data_sets_are_written_and_read(monkeypatch):
    pytest.importorskip("minari")
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(Path.cwd() / "minari"))
    task = {"env_kwargs": {"max_episode_steps": 15, "falls": True}}
    run(config("sac", random_steps=100, **task), Path("earlier"))
    write_dataset(Path("earlier"), "minari:ours/line-v0", trust_env=True)
    assert read("minari:ours/line-v0").checksum == read("earlier").checksum
    with pytest.raises(UserError, match="cannot write minari:ours/line-v0: .*already exists"):
        write_dataset(Path("earlier"), "minari:ours/line-v0", trust_env=True)
    with pytest.raises(UserError, match=r"minari:ours/no-v0 cannot be read .*: minari download ours/no-v0, if"):
        read("minari:ours/no-v0")


# --- what is refused, before anything is written ---


def changed(name, index, value):
    def change(arrays):
        arrays[name] = arrays[name].astype(float)
        arrays[name][index] = value

    return change


REFUSED = {
    "missing": (lambda a: a.pop("rewards"), "has no rewards: it holds observations, "),
    "steps": (
        lambda a: a.update(actions=a["actions"][1:]),
        r"actions has the shape \(9, 1\), and .* needs \(10, 1\)$",
    ),
    "shape": (lambda a: a.update(observations=np.zeros((10, 2))), r"observations has the shape \(10, 2\), and"),
    "none": (lambda a: a.update(rewards=np.zeros(0)), "holds no step$"),
    "reward": (changed("rewards", 3, np.nan), r"rewards\[3\] has nan at 0: no finite number$"),
    "too large": (changed("rewards", 3, 1e300), r"rewards\[3\] has inf at 0: no finite number$"),
    "observation": (changed("observations", 2, np.inf), r"observations\[2\] has inf at 0: no finite number$"),
    "bounds": (changed("actions", 4, -1.5), r"actions\[4\] has -1.5 at 0, and .* takes -1 to 1$"),
    "termination": (changed("terminations", 5, 2), r"terminations\[5\] is 2.0: 0 or 1 is needed$"),
    "flags": (lambda a: a.update(truncations=np.zeros(4)), r"truncations has the shape \(4,\), and 10 steps need"),
    "text": (lambda a: a.update(rewards=np.array(["a"] * 10)), "rewards holds <U1: numbers are needed$"),
    "objects": (lambda a: a.update(rewards=np.array([None] * 10)), "cannot be read: Object arrays"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_wrong_data_are_one_line(case):
    change, message = REFUSED[case]
    arrays = {name: array[:10] for name, array in played(1, Line()).items()}
    change(arrays)
    np.savez("prior.npz", **arrays)
    with pytest.raises(UserError, match=message) as raised:
        run(config(prior="prior.npz"), Path("run"))
    assert "\n" not in str(raised.value)
    assert not Path("run").exists()


def test_what_is_no_data_at_all():
    Path("text.npz").write_text("hello")
    np.save("array.npy", np.zeros(3))
    for name in ("text.npz", "array.npy"):
        with pytest.raises(UserError, match="is no prior data: give an npz file, a run directory or minari:ID"):
            read(name)
    with pytest.raises(UserError, match="^absent is no prior data: there is no such file, and no run directory$"):
        read("absent")


def test_runs_of_other_tasks_windows_and_images():
    run(config("sac", n_step=3, random_steps=20, steps=30), Path("windows"))
    with pytest.raises(UserError, match="the replay of windows holds sums of 3 steps: prior data are single"):
        read("windows")
    run(config("sac", env="Pendulum-v1", env_kwargs={}, steps=30), Path("pendulum"))
    with pytest.raises(UserError, match="^pendulum holds transitions of other sizes than those of Line, whose"):
        read("pendulum")
    for changes in ({"pixels": {}}, {"model": {}, "random_steps": 20}):
        with pytest.raises(UserError, match="prior data are steps from state to state"):
            config("sac", prior="a.npz", **changes)


def test_data_that_memory_cannot_hold_are_not_read(monkeypatch):
    np.savez_compressed("prior.npz", **{name: np.zeros((10**6, 1)) for name in played(1)})
    monkeypatch.setattr(resources, "free_memory", lambda: 10**8)
    with pytest.raises(UserError, match="prior data in prior.npz need about 0.1 GB of memory and 0.1 GB are free"):
        read("prior.npz")


# --- in a run ---


def test_files_are_given_on_the_command_line_in_yaml_and_in_python():
    asked, out = parse_options("--prior a.npz b.npz --steps 5 --out run".split())
    assert (asked, out) == ({"prior": ["a.npz", "b.npz"], "steps": 5}, Path("run"))
    assert parse_options(["--prior=a.npz"])[0] == parse_options(["--prior", "a.npz"])[0] == {"prior": "a.npz"}
    assert parse_axes(["--prior", "a.npz,b.npz"]) == {"prior": ["a.npz", "b.npz"]}
    with pytest.raises(UserError, match="^--prior needs a value$"):
        parse_options(["--prior", "--steps", "5"])
    for prior in ("a.npz", ["a.npz"], Path("a.npz"), [Path("a.npz")]):
        assert config(prior=prior).prior == ("a.npz",)
    with pytest.raises(UserError, match="^prior: "):
        config(prior=3)


class StopAt(Callback):
    """Stops a run with a checkpoint after a step."""

    def __init__(self, step):
        self.step = step

    def on_step(self, progress):
        return progress.step != self.step


@pytest.mark.parametrize("changes", [{}, {"n_step": 3, "prior_share": 0.25, "learn_at": "episode"}])
def test_a_run_with_prior_data_resumes_exactly(changes):
    np.savez("prior.npz", **played(10))
    asked = config(prior="prior.npz", **changes)
    for step in (1, 37, 64):
        assert not run(asked, Path("cut"), callbacks=[StopAt(step)]).finished
    for out in ("cut", "whole"):
        assert run(asked, Path(out)).finished
    assert_same_run("whole", "cut")


def test_a_run_goes_on_with_the_same_data_only():
    np.savez("prior.npz", **played(10))
    np.savez("other.npz", **played(10, seed=5))
    run(config(prior="prior.npz", steps=30), Path("run"))
    for prior in ("other.npz", ()):
        with pytest.raises(UserError, match="holds a run with other settings .prior_checksum: .* there, "):
            run(config(prior=prior, steps=40), Path("run"))
    Path("elsewhere").mkdir()
    shutil.move("prior.npz", "elsewhere/moved.npz")
    assert run(config(prior="elsewhere/moved.npz", steps=40), Path("run")).finished
    shutil.copy("other.npz", "elsewhere/moved.npz")
    with pytest.raises(UserError, match="^the prior data have the checksum .*, not .*: they are not those that"):
        Algorithm.load("run", env=Line)
    Path("elsewhere/moved.npz").unlink()
    assembly, step = load_run(Path("run"), trust_env=True)  # what only acts needs no prior data
    assert (step, assembly.config.prior) == (40, ())


def test_what_is_said_at_the_start():
    np.savez("prior.npz", **played(3))
    needs = resources.estimate_needs(config(), assemble(config(prior="prior.npz")).trainer.replay)
    count = len(played(3)["rewards"])
    assert str(needs).endswith(f"; {count} prior transitions: 0.0 MB, 50% of each batch")


def test_in_python():
    np.savez("prior.npz", **played(10))
    settings = {name: value for name, value in SMALL.items() if name not in ("env", "env_kwargs", "steps")}

    def made():
        return GPLRLPD(Line, prior=["prior.npz"], **settings)

    once = made().learn(60, out="run")
    loaded = GPLRLPD.load("run", env=Line).learn(80)
    again = made().learn(80)
    assert all(map(torch.equal, loaded.agent.state_dict().values(), again.agent.state_dict().values()))
    assert once.config.prior == (str(Path("prior.npz").absolute()),)
    Path("prior.npz").unlink()
    file = GPLRLPD.load(once.save("agent.safetensors"), env=Line)
    assert file.config.prior == ()
    assert np.array_equal(*(one.predict(np.zeros(1), deterministic=True)[0] for one in (once, file)))


def test_beta_is_fixed_until_online_episodes_show_a_bias():
    """Prior data pay 3 for a step and the task pays 1: critics over-estimate. Beta rises, but not at once."""
    data = played(60, Constant(length=3))
    data["rewards"] = data["rewards"] + 2
    np.savez("prior.npz", **data)
    quick = {"lr": 1e-2, "tau": 0.05, "discount": 0.9, "alpha": 0.01, "pessimism": {"wait": 0.5}}
    shared = {name: SMALL[name] for name in ("updates_per_step", "batch_size", "hidden", "compile", "threads")}
    agent = GPLRLPD(
        lambda: Constant(length=3), prior="prior.npz", prior_share=1.0, critic={"hidden": 16}, **shared, **quick
    )
    betas = []
    agent.learn(120, lambda progress: betas.append(float(agent.agent.pessimism.beta)))
    waiting = round(0.5 * agent.agent.pessimism.delay)
    assert waiting == 50  # half of 1 / (tau (1 - discount) updates)
    assert set(betas[:waiting]) == {0.5}
    assert betas[-1] > 0.5


@pytest.mark.slow
def test_prior_data_of_random_episodes_teach_the_line_in_few_steps():
    """100 steps are two episodes. With random steps of earlier ones the policy goes to the middle and stays."""
    np.savez("prior.npz", **played(60, Line()))
    settings = {
        "random_steps": 0,
        "updates_per_step": 10,
        "batch_size": 64,
        "hidden": 32,
        "critic": {"hidden": 32, "members": 3},
        "compile": False,
        "threads": 1,
        "lr": 1e-3,
        "alpha": 0.1,
        "discount": 0.9,
    }
    with_prior, without = (
        GPLRLPD(Line, prior=prior, **settings).learn(100).evaluate(10) for prior in (["prior.npz"], [])
    )
    scores = [float(np.mean(one.returns)) for one in (with_prior, without)]
    assert (
        scores[0] > -4
    )  # a good policy has -1 (0.01 for each step in the middle, and the way there), a bad one -25
    assert scores[0] > scores[1] + 2
