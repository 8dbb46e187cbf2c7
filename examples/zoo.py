"""RL Zoo with GPLSAC beside SB3's algorithms (pip install rl_zoo3).

python examples/zoo.py train --algo gplsac --env Pendulum-v1 --conf-file examples/zoo.yml
python examples/zoo.py enjoy --algo gplsac --env Pendulum-v1 --folder logs
"""

import sys

try:
    import rl_zoo3
    from rl_zoo3.enjoy import enjoy
    from rl_zoo3.train import train
except ImportError as error:
    sys.exit(f"RL Zoo is not installed ({error}): pip install rl_zoo3")

from pessimism.sb3 import GPLSAC

rl_zoo3.ALGOS["gplsac"] = GPLSAC  # the one table that all its commands read

if __name__ == "__main__":
    commands = {"train": train, "enjoy": enjoy}
    if len(sys.argv) < 2 or sys.argv[1] not in commands:
        sys.exit(__doc__)
    commands[sys.argv.pop(1)]()
