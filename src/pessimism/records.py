"""The files of a run, by name. Shared by what writes them and what reads them; standard library only."""

CONFIG = "config.yaml"
MANIFEST = "manifest.json"
METRICS = "metrics.jsonl"  # the same for the same config, bit for bit
TIMING = "timing.jsonl"  # what the clock said
EVALUATIONS = "evaluations.npz"  # as SB3's EvalCallback writes it
MONITOR = "0.monitor.csv"  # as SB3's Monitor writes it
TENSORBOARD = "tensorboard"
CHECKPOINTS = "checkpoints"
REPLAY = "replay"
LOCK = "lock"
OUTPUT = "output.log"  # what a run in a sweep printed
DONE = "DONE"
SUITE = "suite.json"  # beside the runs of a sweep: which they are, and how they are compared
CURVE = "curve.png"
VIDEO = "agent.mp4"
