"""One tree of errors: a user's mistake is one line on stderr and a documented exit code.

| exit code | error           | meaning                                                            |
|-----------|-----------------|--------------------------------------------------------------------|
| 0         |                 | done                                                               |
| 1         | NmtalignError   | anything else that nmtalign itself noticed; an experiment failed   |
| 2         | UsageError      | unknown option, wrong value, missing argument, wrong configuration |
| 3         | InputError      | text that is missing, of unequal length, or not UTF-8              |
| 4         | FormatError     | a corpus, model or alignment file that is missing, foreign, damaged|
| 5         | ResourceError   | disk full, out of memory, no such device, no permission to write   |
| 6         | TrainingError   | training cannot go on (the loss is not finite)                     |
| 129       |                 | ended by SIGHUP (its terminal closed); what was reached is kept    |
| 130       |                 | interrupted (Ctrl-C); what was reached is kept                     |
| 143       |                 | ended by SIGTERM; what was reached is kept                         |
"""


class NmtalignError(Exception):
    """Base of all errors that are reported to the user in one line."""

    exit_code = 1


class UsageError(NmtalignError):
    """A wrong option, argument or configuration value."""

    exit_code = 2


class InputError(NmtalignError):
    """Text that cannot be used: missing, unequal line counts, not UTF-8."""

    exit_code = 3


class FormatError(NmtalignError):
    """A corpus, model or alignment file that is missing, foreign or damaged."""

    exit_code = 4


class ResourceError(NmtalignError):
    """The machine cannot do it: disk full, out of memory, no such device."""

    exit_code = 5


class TrainingError(NmtalignError):
    """Training cannot go on."""

    exit_code = 6


NO_MEMORY = "out of memory; give a smaller batch, shorter lines or fewer workers"

# What the libraries say where memory or address space runs out, each in its own kind of error.
_NO_MEMORY = (
    "out of memory",
    "allocate memory",
    "unable to allocate",
    "bad_alloc",
    "bad allocation",
    "memory allocation failed",
    "can't start new thread",
    "failed to map segment",
    "could not create a primitive\n",  # oneDNN; with more words after it, it is another error
    "error return without exception set",
)


def is_out_of_memory(error: BaseException | None) -> bool:
    """Whether an error, or one that it was raised from, says that there is no memory left."""
    while error is not None:
        if isinstance(error, MemoryError):
            return True
        if isinstance(error, RuntimeError | OSError | ImportError | SystemError):
            told = f"{getattr(error, 'strerror', None) or error}\n".lower()  # strerror is without names of files
            if any(sign in told for sign in _NO_MEMORY):
                return True
        error = error.__cause__ or error.__context__
    return False
