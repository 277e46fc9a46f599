"""`python -m beamsearch`."""

from beamsearch.cli import main

main()
