"""`python -m abaca.cli` is `abaca`."""

from abaca.cli import main

main()
