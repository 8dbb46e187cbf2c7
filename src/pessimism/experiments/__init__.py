"""Many runs at once: suites of the paper, sweeps, and the processes that run them."""
