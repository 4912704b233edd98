"""The same as `abaca bench loss`."""

import sys

from abaca.cli import main

sys.argv[1:1] = ["bench", "loss"]
if __name__ == "__main__":
    main()
