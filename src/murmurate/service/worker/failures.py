"""What is said and counted of an error: its cause from a short list, and a reason that quotes no reading."""

from __future__ import annotations

import errno

from murmurate.errors import MeterError, MurmurateError, ReadingError

# Of the machine, not of a file's contents: they may be over in a moment, so it is worth trying again.
_PASSING_ERRORS = frozenset(
    {
        *(errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS, errno.ENOMEM, errno.EMFILE, errno.ENFILE),
        *(errno.EAGAIN, errno.EBUSY, errno.ESTALE, errno.ETIMEDOUT, errno.EHOSTDOWN, errno.ENOTCONN),
    }
)


def error_reason(error: Exception) -> str:
    """Our own errors name files, intervals and rules, never a reading. Of other errors only the class is safe."""
    return str(error) if isinstance(error, MurmurateError) else type(error).__name__


def error_cause(error: Exception) -> str:
    """The label of an error in a metric."""
    if isinstance(error, MeterError):
        return "meter table"
    if isinstance(error, ReadingError):
        return "readings"
    return "disk" if isinstance(error, OSError) else "other"


def may_pass(error: Exception) -> bool:
    """Whether the same step may succeed a moment later without an operator."""
    return isinstance(error, MemoryError) or (isinstance(error, OSError) and error.errno in _PASSING_ERRORS)
