"""Learned models of a task: a source of batches beside the real replay (MBPO; Janner et al., 2019)."""
