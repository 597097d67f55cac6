"""Runs the program: `python -m toolscout`."""

from toolscout._program import main

if __name__ == "__main__":
    main()
