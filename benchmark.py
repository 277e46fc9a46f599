"""Every problem's times side by side: `python benchmark.py [PROBLEM or RUN…] [--json FILE]`."""

import sys

from beamsearch.cli.app import main

main(["benchmark", *sys.argv[1:]])
