"""Experiments as data: which runs, with which settings, compared how. Torch-free."""
