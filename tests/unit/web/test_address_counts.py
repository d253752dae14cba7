"""Limits count by address: what one holds does not count for another, and nothing is kept about one that is gone."""

from hypothesis import given
from hypothesis import strategies as st

from murmurate.service.web.address_counts import AddressCounts

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
    assert [counts.add(address) for address in ("192.0.2.1", "::ffff:192.0.2.1")] == [1, 2]


def test_a_trusted_network_and_a_socket_without_an_address_are_not_counted():
    counts = AddressCounts(1, ["10.0.0.0/8", "::1"])
    for address in ("10.1.2.3", "::ffff:10.1.2.3", "::1", "", "/run/socket"):
        assert [counts.add(address) for _ in range(3)] == [0, 0, 0]
        assert not counts.is_full(address)
        counts.remove(address)
