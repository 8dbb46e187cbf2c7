"""Scripts in benchmarks/ and studies/: --help from their docstring, and mistakes reported in one line."""

import argparse
import sys
from collections.abc import Callable
from typing import NoReturn

from pessimism.errors import UserError
from pessimism.terminal import BROKEN_PIPE, discard_output


class Parser(argparse.ArgumentParser):
    """An argument parser whose help is the script's docstring and whose errors are one line."""

    def __init__(self, text: str | None) -> None:
        formatter = argparse.RawDescriptionHelpFormatter
        super().__init__(description=text, formatter_class=formatter, allow_abbrev=False)

    def error(self, message: str) -> NoReturn:
        """Raise instead of printing the usage."""
        raise UserError(f"{message}; see --help")


def start(main: Callable[[], int | None]) -> NoReturn:
    """Run a script's main function. A mistake of the user ends it with one line and exit code 2."""
    try:
        code = main()
        sys.stdout.flush()
    except UserError as error:
        print(f"{sys.argv[0]}: {error}", file=sys.stderr)
        code = 2
    except BrokenPipeError:  # such as `run.py --plan | head`
        discard_output()
        code = BROKEN_PIPE
    sys.exit(code)
