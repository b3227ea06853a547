"""The errors that nmtalign raises; the command line prints one line for each and exits with its code.

The manual lists the first line of each class.
"""

import re


class NmtalignError(Exception):
    """Any other error that is reported in one line: an experiment failed, or a score is below --fail-under.

    All errors derive from it.
    """

    exit_code = 1


class UsageError(NmtalignError):
    """A wrong or missing option or argument, or a wrong value of a setting."""

    exit_code = 2


class InputError(NmtalignError):
    """Text that is missing, has another number of lines than its translation, or is not UTF-8."""

    exit_code = 3


class FormatError(NmtalignError):
    """A corpus, model or alignment file that is missing, foreign or damaged."""

    exit_code = 4


class ResourceError(NmtalignError):
    """The machine lacks something: disk space, memory, permission, a device."""

    exit_code = 5


class TrainingError(NmtalignError):
    """Training cannot continue, for example because the loss is not finite."""

    exit_code = 6


NO_PROBABILITY = "the model gives no finite probability: is it damaged, or has its training diverged?"
NO_MEMORY = "out of memory; give a smaller batch, shorter lines or fewer workers"

# Parts of the messages with which libraries report that memory or address space is exhausted.
_NO_MEMORY = re.compile(
    "out of memory|not enough memory|allocate memory|unable to allocate|bad_alloc|bad allocation"
    "|memory allocation failed|can't start new thread|failed to map segment|error return without exception set"
    "|could not create a primitive\n"  # oneDNN; a longer message is another error
)


def is_out_of_memory(error: BaseException | None) -> bool:
    """Returns whether an error, or one of its causes, reports that memory is exhausted."""
    while error is not None:
        if isinstance(error, MemoryError):
            return True
        if isinstance(error, RuntimeError | OSError | ImportError | SystemError):
            message = f"{getattr(error, 'strerror', None) or error}\n".lower()  # strerror contains no file names
            if _NO_MEMORY.search(message):
                return True
        error = error.__cause__ or error.__context__
    return False
