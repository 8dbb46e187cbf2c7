"""Run the command line: python -m pessimism."""

import sys

from pessimism.cli import main

sys.exit(main())
