"""Tries to break the command line with damaged files, the same ones for the same seed: `python -m tools.fuzz`."""
