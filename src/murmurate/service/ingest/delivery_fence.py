"""Whether a broker's messages arrive without delay: only then is a message that tells no time as old as its arrival.

A message may have waited: at the broker while this client was away, in a socket while this process stood still, or
until there was room in our queue. A fence is a message that the client publishes to itself. A broker delivers what it
has for a client in the order in which it took it, so what arrives after a fence was taken after the fence was sent.

    a fence is sent            it returns          a point arrives
    |------------------ less than `tolerance_s` ---|                the broker took the point within this time

While no fence returns, points are refused, whatever the reason is. Then senders may have kept points of their own, and
send them when the broker is back. So fences must have returned for `settle_s` without a gap before points count again.

Times are those of the service's clock [s of UTC]. If it is set back or ahead, that is a gap.
"""

from __future__ import annotations

import os
import threading
from math import inf

TOLERANCE_SHARE = 1 / 60  # of an interval
SETTLE_SHARE = 1 / 6  # of an interval: 150 s of 15 minutes; common clients connect again within 120 s
FENCES_PER_TOLERANCE = 5
_TOKEN_BYTES = 16  # a fence of another client, or of an earlier process, is not known and does not count


class DeliveryFence:
    """The fences of one session. One thread sends them, another one receives."""

    def __init__(self, interval_s: float) -> None:
        self.tolerance_s = interval_s * TOLERANCE_SHARE
        self.settle_s = interval_s * SETTLE_SHARE
        self._lock = threading.Lock()
        self._token = b""  # of the fence that is under way; none: it has returned
        self._sent_s = -inf  # the fence that is under way
        self.returned_s = -inf  # when the last fence that has returned was sent
        self.lost_in_row = 0  # fences that took too long
        self._since_s = inf  # when the first fence returned after the last gap

    def next_fence(self, now_s: float) -> bytes | None:
        """The payload of a fence to send now. None while another one is under way, and has not taken too long."""
        with self._lock:
            if self._token and self._is_recent(self._sent_s, now_s):
                return None
            self.lost_in_row += bool(self._token)
            self._token, self._sent_s = os.urandom(_TOKEN_BYTES), now_s
            return self._token

    def note_return(self, payload: bytes, now_s: float) -> None:
        """Note that a fence has returned."""
        with self._lock:
            if not self._token or payload != self._token:
                return
            if not self._is_recent(self.returned_s, now_s):
                self._since_s = now_s
            self._token, self.returned_s, self.lost_in_row = b"", self._sent_s, 0

    def is_open(self, now_s: float) -> bool:
        """Whether what arrives now has not waited."""
        with self._lock:
            return self._is_recent(self.returned_s, now_s) and now_s - self._since_s >= self.settle_s

    def _is_recent(self, sent_s: float, now_s: float) -> bool:
        return 0 <= now_s - sent_s < self.tolerance_s
