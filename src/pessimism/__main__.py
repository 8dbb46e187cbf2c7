"""Run the command line: python -m pessimism."""

import sys

try:
    from pessimism.cli import main
except KeyboardInterrupt:
    sys.exit(130)

sys.exit(main())
