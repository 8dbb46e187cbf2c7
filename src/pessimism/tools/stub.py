"""Write the package's stub, which tells type checkers and editors the classes that are made from presets.

python -m pessimism.tools.stub
"""

from pathlib import Path

import pessimism
from pessimism.config.presets import PRESETS

PATH = Path(pessimism.__file__).with_suffix(".pyi")
HEAD = """\
# Written by python -m pessimism.tools.stub from the table of presets.
from pessimism.api import Algorithm as Algorithm
from pessimism.errors import UserError as UserError
from pessimism.training.loop import Callback as Callback
"""


def stub() -> str:
    """Return the stub as text: a class for each preset."""
    classes = [f'\nclass {entry.python}(Algorithm):\n    """{entry.text(4)}"""\n' for entry in PRESETS.values()]
    return HEAD + "".join(classes)


if __name__ == "__main__":
    PATH.write_text(stub())
