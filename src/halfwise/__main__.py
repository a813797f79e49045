"""`python -m halfwise`: the command line without its script."""

from halfwise.cli.main import main

main()
