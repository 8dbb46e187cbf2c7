"""One seed, many independent streams, each with a name."""

import zlib

import numpy as np
import torch


def stream_seed(seed: int, name: str, *indices: int) -> int:
    """Return the seed of a named stream, and of its part number `indices` (such as an episode)."""
    entropy = [seed, zlib.crc32(name.encode()), *indices]
    return int(np.random.SeedSequence(entropy).generate_state(1)[0])


def stream(seed: int, name: str, *indices: int) -> torch.Generator:
    """Return a generator of its own for a named stream."""
    return torch.Generator().manual_seed(stream_seed(seed, name, *indices))
