"""Sample-efficient reinforcement learning whose value estimates can be trusted."""
