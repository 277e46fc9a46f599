"""Every problem's times side by side: `python benchmark.py [PROBLEM or RUN…] [--json FILE]`."""

import sys

from beamsearch.cli import main

main(["benchmark", *sys.argv[1:]])
