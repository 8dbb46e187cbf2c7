"""Agents: how an algorithm learns from batches. They know no environment, loop or logger."""
