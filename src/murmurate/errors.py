"""The exceptions of this package. Each one names the field, the value and what is allowed."""

from __future__ import annotations


class MurmurateError(Exception):
    """A field holds a value that is not allowed. All errors of this package derive from this class.

    Attributes:
        field: Name of the parameter, key or member that is wrong.
        value: The value that was found. It is never a reading or a demand.
        allowed: What is allowed instead, as the end of a sentence.

    Example:
        >>> import murmurate as mm
        >>> raise mm.errors.MurmurateError("epsilon", -1, "must be positive")
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
    """An occupancy or consumption model is not a probability, or its arrays do not fit each other."""


class MeterError(MurmurateError):
    """A meter table cannot be used: a bound is zero, or a zone does not exist."""


class ReadingError(MurmurateError):
    """A reading or a file of readings cannot be accepted. No reading is refused for its value."""


class UnknownZoneError(MeterError):
    """The meter table has no such zone."""


class TariffError(MurmurateError):
    """A rate curve, tick, cap or floor does not describe a price."""


class PrivacyError(MurmurateError):
    """No promise can be kept with this budget, sensitivity or noise, or a plan breaks its promise."""


class ChainError(MurmurateError):
    """A record does not follow the one before it in the public log, or its signature is not valid."""


class ZoneFileError(MurmurateError):
    """A zone file cannot be read.

    Attributes:
        line: Number of the line, from 1.
        field: Name of the key that is wrong.
        value: The value that was found.
        allowed: What to write instead.
        file: Name of the file; empty until a caller that knows it sets it.

    Example:
        >>> import murmurate as mm
        >>> mm.parse_zone('name = 3')
        Traceback (most recent call last):
        murmurate.errors.ZoneFileError: line 1: households is missing: must be given in the top of the file
    """

    def __init__(self, line: int, field: str, value: object, allowed: str) -> None:
        super().__init__(field, value, allowed)
        self.line = line
        self.file = ""

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}" if self.file else f"line {self.line}"
        return f"{place}: {super().__str__()}"


class MissingExtraError(MurmurateError):
    """An optional package is not installed. The message names the extra of `pip install` that brings it."""


class UnknownNameError(MurmurateError):
    """A name, such as that of an interpretation of the paper, is not defined."""


def require_members(field: str, value: object, protocol: str, *members: str) -> None:
    """Raise MurmurateError unless a value has each of these methods and attributes of a protocol.

    >>> require_members("noise", 3, "NoiseSampler", "draw")
    Traceback (most recent call last):
    murmurate.errors.MurmurateError: noise is of type int, without draw: must have draw: see help(mm.NoiseSampler)
    """
    if isinstance(value, type):
        raise MurmurateError(field, f"the class {value.__name__}", f"must be an object: write {value.__name__}(..)")
    lacking = [member for member in members if not hasattr(value, member)]
    if lacking:
        found = f"of type {type(value).__name__}, without {' and '.join(lacking)}"
        raise MurmurateError(field, found, f"must have {' and '.join(members)}: see help(mm.{protocol})")
