"""What can go wrong, as a small tree whose leaves carry facts: which field, which value, what is allowed."""

from __future__ import annotations


class MurmurateError(Exception):
    """A field holds a value that is not allowed.

    >>> raise MurmurateError("epsilon", -1, "must be positive")
    Traceback (most recent call last):
    murmurate.errors.MurmurateError: epsilon is -1: must be positive
    """

    def __init__(self, field: str, value: object, allowed: str) -> None:
        super().__init__(field, value, allowed)
        self.field = field
        self.value = value
        self.allowed = allowed

    def __str__(self) -> str:
        return f"{self.field} is {self.value}: {self.allowed}"


class ModelError(MurmurateError):
    """An occupancy model or a consumption law that is not a probability, or does not fit its neighbours."""


class MeterError(MurmurateError):
    """A meter table that cannot be used: a bound of zero, a zone that does not exist."""


class ReadingError(MurmurateError):
    """A reading that the door must hand back to its sender. `gather` itself refuses none for its value."""


class UnknownZoneError(MeterError):
    """A zone that the meter table does not name."""


class TariffError(MurmurateError):
    """A rate curve, tick, cap or floor that does not describe a price."""


class PrivacyError(MurmurateError):
    """A budget, sensitivity or noise scale under which no promise can be kept."""


class ChainError(MurmurateError):
    """A public log entry that does not follow from the one before, or that nobody can have signed."""


class ZoneFileError(MurmurateError):
    """A zone file that cannot be read: the line, and what to write instead."""

    def __init__(self, line: int, field: str, value: object, allowed: str) -> None:
        super().__init__(field, value, allowed)
        self.line = line
        self.file = ""

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}" if self.file else f"line {self.line}"
        return f"{place}: {super().__str__()}"


class UnknownNameError(MurmurateError):
    """A name (of a reading of the paper, of a world) that nobody has defined."""
