"""Names from Stable-Baselines3 that users may try, and what to use here instead."""

from collections.abc import Iterable

IN_SB3 = "pessimism.sb3.GPLSAC, a subclass of SB3's SAC"

SETTINGS = {
    "learning_rate": "lr",
    "buffer_size": "replay_capacity",
    "learning_starts": "random_steps",
    "gamma": "discount",
    "train_freq": "update_every",
    "gradient_steps": "updates_per_step",
    "policy_delay": "policy_every",
    "n_steps": "n_step",
    "ent_coef": "alpha (its first value; it is learned)",
    "n_critics": 'critic={"members": N}',
    "policy_kwargs": 'hidden=N for the policy and critic={"members": N, "hidden": N} for the critics',
    "net_arch": 'hidden=N for the policy and critic={"hidden": N} for the critics',
    "tensorboard_log": "learn(out=DIR), which writes TensorBoard events into DIR",
    "n_envs": "a list of functions that make environments, or a vector environment, in place of env",
    "verbose": "learn(progress_bar=True)",
    "action_noise": 'policy="noisy", noise=(FIRST, LAST, STEPS) and alpha=0',
    "target_update_interval": "tau: target critics move with every update",
    "optimize_memory_usage": "replay_file=FILE, which keeps the replay on a disk",
    "stats_window_size": 'log={"every": STEPS}',
    "use_sde": IN_SB3,
    "replay_buffer_class": IN_SB3,
    "replay_buffer_kwargs": IN_SB3,
}
"""Arguments of SB3's constructors."""

LEARN = {
    "log_interval": 'log={"every": STEPS} when the agent is made',
    "eval_env": 'evaluation={"every": STEPS} when the agent is made',
    "eval_freq": 'evaluation={"every": STEPS} when the agent is made',
    "tb_log_name": "learn(out=DIR): each run has a directory of its own",
    "reset_num_timesteps": "learn(agent.num_timesteps + N): total_timesteps counts all steps of an agent",
}
"""Arguments of SB3's `learn`."""

ATTRIBUTES = {
    "logger": "Callback.on_metrics, or metrics.jsonl in the directory of learn(out=DIR); metrics have SB3's names",
    "set_env": "save(FILE) and load(FILE, env=ENV)",
    "save_replay_buffer": "learn(out=DIR), which keeps the replay in DIR, and load(DIR)",
    "load_replay_buffer": "load(DIR) with the directory of learn(out=DIR), which has the replay",
    "replay_buffer": "assembly.trainer.replay",
    "policy": "agent.actor",
    "set_logger": "Callback.on_metrics",
    "actor": "agent.actor",
    "critic": "agent.critic",
    "ep_info_buffer": "Callback.on_metrics, or 0.monitor.csv in the directory of learn(out=DIR)",
    "gamma": "config.discount",
    "learning_rate": "config.lr",
    "set_random_seed": "seed=N when the agent is made",
    "get_parameters": "agent.state_dict()",
    "set_parameters": "agent.load_state_dict(...)",
}
"""Attributes and methods of SB3's agents."""

LOAD = {
    "device": "device=NAME when the agent is made; a file keeps it",
    "custom_objects": "not needed: nothing is unpickled",
    "print_system_info": "the command pessimism doctor",
    "force_reset": "not needed: training begins with a new episode",
}
"""Arguments of SB3's `load`."""


def answer(names: Iterable[str], table: dict[str, str]) -> str | None:
    """Return a line for the first name that the table knows."""
    return next((f"{name} is SB3's name: here it is {table[name]}" for name in names if name in table), None)
