"""Replay: where transitions are kept and batches come from."""
