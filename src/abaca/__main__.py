"""`python -m abaca` is `abaca`."""

from abaca.cli import main

main()
