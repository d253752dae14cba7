"""The address of a client, and how many of something each one holds at once: connections, streams."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network

UNKNOWN_CLIENT = "unknown"  # all clients without an address count as one
_IPV6_PREFIX = 64  # a network of one household
_MAX_ADDRESS_CHARS = 45  # of an IPv6 address that ends with one of IPv4


class AddressGroups:
    """Map an address to its client. Trusted addresses are exempt: many clients may share one.

    >>> groups = AddressGroups(["127.0.0.0/8"])
    >>> [groups.find(address) for address in ("192.0.2.1", "2001:db8::1:2:3:4", "", "127.0.0.1")]
    ['192.0.2.1', '2001:db8::/64', 'unknown', None]
    """

    def __init__(self, trusted: Iterable[str] = ()) -> None:
        self._trusted = tuple(ip_network(network) for network in trusted)
        self.find = lru_cache(maxsize=4096)(self._find)

    def _find(self, address: str) -> str | None:
        """The addresses that are counted together. None: it is not counted."""
        try:
            parsed = parse_address(address)
        except ValueError:
            return UNKNOWN_CLIENT
        if any(parsed in network for network in self._trusted):
            return None
        if isinstance(parsed, IPv6Address):
            return str(ip_network((parsed, _IPV6_PREFIX), strict=False))
        return str(parsed)


class AddressCounts:
    """Counts by address, for one thread, as `AddressGroups` names them.

    >>> streams = AddressCounts(2, ["127.0.0.0/8"])
    >>> [streams.add(address) for address in ("192.0.2.1", "192.0.2.1", "192.0.2.2", "127.0.0.1")]
    [1, 2, 1, 0]
    >>> streams.is_full("192.0.2.1"), streams.is_full("127.0.0.1")
    (True, False)
    """

    def __init__(self, max_each: int, trusted: Iterable[str] = ()) -> None:
        self.max_each = max_each
        self._counts: dict[str, int] = {}
        self._group = AddressGroups(trusted).find

    def is_full(self, address: str) -> bool:
        """Whether an address holds as many as it may."""
        group = self._group(address)
        return group is not None and self._counts.get(group, 0) >= self.max_each

    def add(self, address: str) -> int:
        """Count one more. Return how many the address holds; 0: it is not counted."""
        group = self._group(address)
        if group is None:
            return 0
        self._counts[group] = self._counts.get(group, 0) + 1
        return self._counts[group]

    def remove(self, address: str) -> None:
        """Count one less. Nothing is kept about an address that holds none."""
        group = self._group(address)
        if group is None:
            return
        self._counts[group] -= 1
        if not self._counts[group]:
            del self._counts[group]

    @contextmanager
    def held(self, address: str) -> Iterator[None]:
        """Count one while the block runs."""
        self.add(address)
        try:
            yield
        finally:
            self.remove(address)


def parse_address(text: str) -> IPv4Address | IPv6Address:
    """An address as a socket names it. One of IPv4 that came over IPv6 is of IPv4. Raises ValueError.

    >>> parse_address("::ffff:192.0.2.1"), parse_address("fe80::1%eth0").is_link_local
    (IPv4Address('192.0.2.1'), True)
    """
    address = ip_address(text)
    return getattr(address, "ipv4_mapped", None) or address


def is_loopback(address: str) -> bool:
    """Whether an address is of this machine."""
    try:
        return parse_address(address).is_loopback
    except ValueError:
        return False


def forwarded_address(headers: Iterable[tuple[bytes, bytes]]) -> str | None:
    """The client that a proxy names: the last address of `X-Forwarded-For`. None: it names none.

    What comes before the last address, and what is no address, may be the client's own text. A client behind a proxy is
    never on this machine: a proxy that passes on what the client sent must not give it the rights of this machine.

    >>> forwarded_address([(b"x-forwarded-for", b"127.0.0.1, 192.0.2.1")])
    '192.0.2.1'
    >>> [forwarded_address([(b"x-forwarded-for", text)]) for text in (b"192.0.2.1, 127.0.0.1", b"home", b"fe80::1%x")]
    [None, None, None]
    """
    texts = [value for name, value in headers if name == b"x-forwarded-for"]
    text = texts[-1].rpartition(b",")[2].strip().decode("latin-1") if texts else ""
    if len(text) > _MAX_ADDRESS_CHARS or "%" in text:  # what follows % may be any text
        return None
    try:
        address = parse_address(text)
    except ValueError:
        return None
    return None if address.is_loopback else str(address)
