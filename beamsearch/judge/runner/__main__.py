"""`python -m beamsearch.judge.runner FD`: serve on a socket by its file descriptor."""

import socket
import sys

from beamsearch.judge.runner.process import serve

serve(socket.socket(fileno=int(sys.argv[1])))
