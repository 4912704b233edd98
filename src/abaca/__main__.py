"""`python -m abaca` is `abaca`."""

from abaca.cli import main

if __name__ == "__main__":  # a worker process of a study imports this file again
    main()
