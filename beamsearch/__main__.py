"""`python -m beamsearch`."""

from beamsearch.cli.app import main

main()
