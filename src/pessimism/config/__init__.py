"""Settings of a run: what there is to set, presets, tasks, and the way from a command to a checked config."""
