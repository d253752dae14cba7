"""What a zone may be called. Its name is a part of addresses, of topics and of file names, for ever."""

from __future__ import annotations

from murmurate.errors import MurmurateError

MAX_ZONE_NAME_BYTES = 200  # in UTF-8; a file name has at most 255, with what is put before and after it
ZONE_NAME_RULE = (
    f"must have 1 to {MAX_ZONE_NAME_BYTES} bytes of printable characters, no slash or backslash, "
    "no dot or space at its beginning and no space at its end: it is a part of addresses"
)


def is_zone_name(name: str) -> bool:
    """Return whether a zone of this name can be read at an address.

    >>> [is_zone_name(name) for name in ("harbour", "Zürich, unter dem Berg", "east/1", "..", "", "two\\nlines")]
    [True, True, False, False, False, False]
    """
    return (
        name.isprintable()
        and 0 < len(name.encode()) <= MAX_ZONE_NAME_BYTES
        and not set(name) & {"/", "\\"}
        and name[0] not in ". "
        and name[-1] != " "
    )


def check_zone_name(name: str, field: str = "name") -> str:
    """Return the name of a new zone. Raises MurmurateError where no address could have it."""
    if not is_zone_name(name):
        raise MurmurateError(field, repr(name), ZONE_NAME_RULE)
    return name
