"""What the user can put right. Each message is one line: what is wrong and what to do."""

import difflib
from collections.abc import Iterable


class UserError(Exception):
    """A mistake in what was asked for. The command line prints it and exits with 2."""


class EnvironmentFault(UserError):
    """The environment raised an error, or returned something that nothing can be learned from."""


def nearest(name: str, candidates: Iterable[str], count: int = 3) -> str:
    """Return a hint such as ``; did you mean Hopper-v4, Hopper-v5?``, or nothing if no name is near."""
    names = {candidate.lower(): candidate for candidate in candidates}
    close = difflib.get_close_matches(name.lower(), names, n=count, cutoff=0.5)
    return f"; did you mean {', '.join(names[key] for key in close)}?" if close else ""
