"""From the files of a run to pictures. Never imports torch."""
