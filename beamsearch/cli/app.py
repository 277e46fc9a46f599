"""The command line: which verbs there are, and how an error ends the process.

Nothing heavy is imported here or at the top of a verb's file, so that `--help` answers at once.
"""

from __future__ import annotations

import atexit
import os
import signal
import sys
from typing import Annotated, NoReturn

import typer

from beamsearch import __version__
from beamsearch.cli.answers import answers
from beamsearch.cli.audit import audit
from beamsearch.cli.benchmark import benchmark
from beamsearch.cli.clean import clean_terminal
from beamsearch.cli.compare import compare
from beamsearch.cli.doctor import doctor
from beamsearch.cli.export import export
from beamsearch.cli.hint import hint
from beamsearch.cli.inject import inject
from beamsearch.cli.new import new
from beamsearch.cli.problems import problems
from beamsearch.cli.profile import profile
from beamsearch.cli.questions import questions
from beamsearch.cli.replay import replay
from beamsearch.cli.report import report
from beamsearch.cli.resume import resume
from beamsearch.cli.run import run
from beamsearch.cli.runs import runs
from beamsearch.cli.show import show
from beamsearch.cli.suite import suite
from beamsearch.cli.time import time
from beamsearch.cli.verify import verify
from beamsearch.cli.watch import watch
from beamsearch.errors import BeamsearchError, Stopped, UsageError, Waiting
from kernel_profiling.errors import BrokenExtension

EXIT_CODES = """\b
Exit codes:
  0    done; for verify: the kernel is correct
  1    the answer is no: a kernel is wrong or missing, a check of doctor or a problem failed
  2    what was asked cannot be done as asked: a name, a value, a file, a folder
  3    this needs an NVIDIA GPU and there is none
  4    the model endpoint refused or cannot be reached
  5    waits for answers to requests.jsonl, a GPU elsewhere, or a larger limit; `resume` goes on
  130  stopped cleanly (Ctrl-C); `resume` goes on
"""

STOPS = (Stopped.exit_code, Waiting.exit_code)
"""The run is in order, and only not at its end."""

app = typer.Typer(
    name="beamsearch",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # rich's help costs three times the whole start-up
    epilog=EXIT_CODES,
)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"beamsearch {__version__}")
        raise typer.Exit()


@app.callback()
def top(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
    verbose: Annotated[
        bool, typer.Option("--verbose", help="Show tracebacks. May stand anywhere on the line.")
    ] = False,
) -> None:
    """Makes GPU kernels fast on its own: profile, diagnose, rewrite, judge, keep the best."""


for verb in (
    run,
    resume,
    watch,
    replay,
    hint,
    inject,
    questions,
    answers,
    problems,
    new,
    verify,
    time,
    profile,
    show,
    report,
    compare,
    suite,
    audit,
    export,
    benchmark,
    doctor,
):
    app.command(verb.__name__)(verb)
app.add_typer(runs, name="runs")


def main(arguments: list[str] | None = None) -> NoReturn:
    """Run a command line (default: this process's) and end the process with its exit code."""
    given = sys.argv[1:] if arguments is None else arguments
    verbose = "--verbose" in given
    clean_terminal()
    try:
        app([word for word in given if word != "--verbose"], prog_name="beamsearch")
    except BeamsearchError as error:
        _end(error, error.exit_code, verbose)
    except BrokenExtension as error:
        _end(error, UsageError.exit_code, verbose)
    except KeyboardInterrupt as error:
        _end(error, Stopped.exit_code, verbose)
    except BrokenPipeError as error:
        # The reader of our output has gone; keep the interpreter from complaining at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        _end(error, 1, verbose, silent=True)
    except (PermissionError, NotADirectoryError, IsADirectoryError) as error:
        _end(_told(error), UsageError.exit_code, verbose)
    except OSError as error:
        _end(error, 1, verbose)
    _exit(0)


def _exit(code: int) -> NoReturn:
    """End the process; Ctrl-C ends it at once from here on, without a traceback of who cleans."""
    atexit.register(signal.signal, signal.SIGINT, signal.SIG_DFL)
    sys.exit(code)


def _told(error: OSError) -> UsageError:
    """A file that is not for us, with what to do."""
    told = UsageError(f"{error.filename}: {error.strerror}; allow it, or give another place")
    told.__cause__ = error
    return told


def _end(error: BaseException, code: int, verbose: bool, silent: bool = False) -> NoReturn:
    """End with one line, or with the traceback where it was asked for."""
    if verbose:
        raise error
    if not silent:
        words = " ".join(str(error).split())
        line = words or "stopped" if code in STOPS else f"error: {words}"
        print(line, file=sys.stderr)  # noqa: T201
    _exit(code)
