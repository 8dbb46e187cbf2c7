"""Commands around a run: the demo, a check of the installation, videos."""
