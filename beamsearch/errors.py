"""Errors a user can cause, each with a sentence on what to do next."""


class BeamsearchError(Exception):
    """Base: printed as one line, never as a traceback. The process ends with `exit_code`."""

    exit_code = 1


class UsageError(BeamsearchError):
    """What was asked for cannot be done as asked: a name, a value, a folder."""

    exit_code = 2


class ProblemError(UsageError):
    """A problem that is unknown, ambiguous, or does not load."""


class ShortOfMemory(ProblemError):
    """A problem found too little of a GPU's memory; others may have had the rest."""


class KernelError(UsageError):
    """A kernel file that does not parse, has no entry point, or cannot be bound."""


class NoGpuError(BeamsearchError):
    """What was asked for needs an NVIDIA GPU, and there is none."""

    exit_code = 3


class EndpointError(BeamsearchError):
    """The model endpoint refused or could not be reached."""

    exit_code = 4


class NoAnswer(EndpointError):
    """One question got no answer, though the endpoint may answer others: its worker's trouble."""


class NeverAnswered(NoAnswer):
    """One question has no answer and will have none: what was not recorded never will be."""


class Stopped(BeamsearchError):
    """The run stopped cleanly before its end and can be resumed."""

    exit_code = 130


class Unanswered(Stopped):
    """A question was put where its answer will be found later; the worker that asked stops here."""


class OutOfBudget(Stopped):
    """The next question would pass a limit on calls, tokens or cost."""


class Waiting(Stopped):
    """The run went as far as it can here, and says what it waits for."""

    exit_code = 5
