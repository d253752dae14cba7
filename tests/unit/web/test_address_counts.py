"""Limits count by address: what one holds does not count for another, and nothing is kept about one that is gone."""

from ipaddress import ip_address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from murmurate.service.web.address_counts import (
    UNKNOWN_CLIENT,
    AddressCounts,
    forwarded_address,
    is_loopback,
    parse_address,
)

ADDRESSES = st.ip_addresses().map(str)


@given(st.lists(ADDRESSES, max_size=20), st.integers(1, 3))
def test_what_is_added_and_removed_leaves_nothing(addresses, max_each):
    counts = AddressCounts(max_each)
    for address in addresses:
        assert counts.is_full(address) == (counts.add(address) > max_each)
    for address in addresses:
        counts.remove(address)
    assert counts._counts == {}


def test_one_network_of_ipv6_is_one_client_and_ipv4_is_the_same_over_ipv6():
    counts = AddressCounts(2)
    assert [counts.add(f"2001:db8::{n}") for n in (1, 2, 3)] == [1, 2, 3]
    assert counts.add("2001:db8:0:1::1") == 1
    assert [counts.add(f"fe80::{n}%eth0") for n in (1, 2)] == [1, 2]
    assert [counts.add(address) for address in ("192.0.2.1", "::ffff:192.0.2.1")] == [1, 2]


def test_clients_without_an_address_count_as_one():
    counts = AddressCounts(2)
    assert [counts.add(text) for text in ("", "/run/socket", "x" * 30_000)] == [1, 2, 3]
    assert list(counts._counts) == [UNKNOWN_CLIENT]


@pytest.mark.slow
@given(st.lists(st.text() | ADDRESSES, max_size=4), st.text(alphabet="0123456789abcdef:.%[], \n") | ADDRESSES)
def test_a_forwarded_address_is_the_last_one_in_canonical_form_and_never_of_this_machine(before, last):
    value = ",".join([*before, last]).encode("latin-1", "replace")
    found = forwarded_address([(b"x-forwarded-for", b"192.0.2.1"), (b"host", b"x"), (b"x-forwarded-for", value)])
    if found is None:
        assert not is_plain_address(last.rpartition(",")[2]) or is_loopback(last.rpartition(",")[2].strip())
    else:
        assert found == str(ip_address(found)) == str(parse_address(last.rpartition(",")[2].strip()))
        assert not is_loopback(found)


def is_plain_address(text):
    try:
        return bool(ip_address(text)) and "%" not in text
    except ValueError:
        return False


def test_a_trusted_network_is_not_counted():
    counts = AddressCounts(1, ["10.0.0.0/8", "::1"])
    for address in ("10.1.2.3", "::ffff:10.1.2.3", "::1"):
        assert [counts.add(address) for _ in range(3)] == [0, 0, 0]
        assert not counts.is_full(address)
        counts.remove(address)
