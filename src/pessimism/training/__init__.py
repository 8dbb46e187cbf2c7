"""The loop and what runs beside it: evaluation, bias meter, checkpoints, sinks."""
