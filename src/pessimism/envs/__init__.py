"""Environments: what a task is and how it is stepped."""
