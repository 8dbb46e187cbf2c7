"""Many runs: on this machine or on a cluster, resumed, retried, watched."""
