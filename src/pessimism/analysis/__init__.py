"""From the files of runs to figures, tables and reports. Never imports torch."""
