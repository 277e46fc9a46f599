"""Every problem's times side by side: `python benchmark.py [PROBLEM or RUN…] [--json FILE]`."""

import sys

from beamsearch.__main__ import start

start(["benchmark", *sys.argv[1:]])
