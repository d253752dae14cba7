"""Ten meters that send what their registers show as bare numbers, through a broker of their own, on a clock that a test
moves: it stands still unless the test moves it, so a busy machine changes nothing.
"""

from __future__ import annotations

import json
import mmap
import random
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path

import pyarrow.parquet as pq
from paho.mqtt.client import Client
from paho.mqtt.enums import CallbackAPIVersion

from murmurate.service.ingest.mqtt_consumer import DeliveryFence
from murmurate.service.landing.layout import Landing
from murmurate.service.mqtt_client import send_at_once
from tests.support.broker import Broker, stop_client
from tests.support.consumer_process import PROGRESS, QUEUE_BYTES, TIME
from tests.support.waiting import wait_until

STEP_S = 900
FIRST_S = 1_794_658_500
METERS = 10
POINT_PERIOD_S = 60
TIMEOUT_S = 300.0
_TOLERANCE_S = int(DeliveryFence(STEP_S).tolerance_s)
_TICK_S = 12  # the clock never moves by more at once while fences return: less than the tolerance
MAX_ERROR = Fraction(_TOLERANCE_S, STEP_S // 2)  # of an energy: a point may be so much older than its arrival


class BareRegisters:
    """The meters, their broker, and the process of the service that takes their messages."""

    def __init__(self, root: Path, dsn: str, seed: int = 1) -> None:
        self.root, self.dsn = root, dsn
        self.counts: Counter[str] = Counter()
        self._rng = random.Random(seed)  # noqa: S311
        self._rates: dict[tuple[int, int], int] = {}
        self.landing = Landing.create(root / "landing")
        rows = [f"{meter},street,1000000,100,m{meter}" for meter in range(METERS)]
        (root / "meters.csv").write_text("\n".join(["meter,zone,bound_wh,imputed_wh,id", *rows]) + "\n")
        (root / "clock").write_bytes(bytes(TIME.size + PROGRESS.size))
        with (root / "clock").open("r+b") as file:
            self._clock = mmap.mmap(file.fileno(), TIME.size + PROGRESS.size)
        self.now_s = FIRST_S + 2 * STEP_S // 3
        self.broker = Broker(root / "broker", autosave=False)
        self.broker.start()
        self.process: subprocess.Popen[str] | None = None
        self._sender = Client(CallbackAPIVersion.VERSION2, client_id="meters")
        self._sender.on_socket_open = send_at_once
        self._sender.reconnect_delay_set(1, 1)
        self._sender.connect("127.0.0.1", self.broker.port)
        self._sender.loop_start()

    def close(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()
        stop_client(self._sender)
        self.broker.kill()

    @property
    def now_s(self) -> float:
        return self._now_s

    @now_s.setter
    def now_s(self, now_s: float) -> None:
        self._now_s = now_s
        TIME.pack_into(self._clock, 0, now_s)

    def energy_wh(self, meter: int, number: int) -> int:
        """What a meter measures in an interval: a multiple of its seconds, so registers show whole Wh each second."""
        if (meter, number) not in self._rates:
            self._rates[meter, number] = self._rng.randint(1, 5)
        return self._rates[meter, number] * STEP_S

    def shown_wh(self, meter: int, at_s: int) -> int:
        """What a register shows."""
        number, second = divmod(at_s - FIRST_S, STEP_S)
        before = sum(self.energy_wh(meter, earlier) for earlier in range(number))
        return before + self.energy_wh(meter, number) // STEP_S * second

    def start(self) -> None:
        """Start the process. Return when its first fence is back."""
        PROGRESS.pack_into(self._clock, TIME.size, 0.0, 0.0)
        facts = {"root": str(self.root), "dsn": self.dsn, "port": self.broker.port}
        command = [sys.executable, "-m", "tests.support.consumer_process", json.dumps(facts)]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        self.await_fence()

    def stop(self) -> None:
        assert self.process is not None
        self.process.terminate()
        output, _ = self.process.communicate(timeout=TIMEOUT_S)
        self.counts.update(json.loads(output))
        self.process = None

    def send_signal(self, number: int) -> None:
        assert self.process is not None
        self.process.send_signal(number)

    def pause(self) -> None:
        self.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        self.send_signal(signal.SIGCONT)

    def until(self, holds: Callable[[], object]) -> None:
        def has_ended() -> bool:
            return self.process is not None and self.process.poll() is not None

        assert wait_until(lambda: holds() or has_ended(), TIMEOUT_S, pause_s=0.001)
        assert not has_ended()

    def await_fence(self) -> None:
        """Wait until a fence that was sent now has returned: all that was published before has arrived."""
        self.until(lambda: PROGRESS.unpack_from(self._clock, TIME.size)[0] == self._now_s)

    def await_room(self) -> None:
        """Wait until little of what has arrived is not stored: at QoS 0 points without room are dropped."""
        self.until(lambda: PROGRESS.unpack_from(self._clock, TIME.size)[1] < QUEUE_BYTES / 10)

    def await_stored(self) -> None:
        """Wait until nothing that has arrived waits to be acknowledged.

        A broker drops messages at QoS 0 for a client that has not acknowledged as many others as may be under way.
        """
        self.until(lambda: PROGRESS.unpack_from(self._clock, TIME.size)[1] == 0)

    def publish(self, shown_at_s: int | None = None, *, confirm: bool = True) -> None:
        """Send what the registers show, or have shown: half of the meters at QoS 1, half at QoS 0."""
        at_s = int(self.now_s) if shown_at_s is None else shown_at_s
        sent = [
            self._sender.publish(f"smartmeter/m{meter}/ACTIVE_ENERGY_P", str(self.shown_wh(meter, at_s)), qos=meter % 2)
            for meter in range(METERS)
        ]
        if confirm:
            self.until(lambda: all(message.is_published() for message in sent))

    def flood(self, messages: int, size: int) -> None:
        for _ in range(messages):
            self._sender.publish("murmurate/readings", b"?" * size, qos=0)

    def play(self, until_s: float) -> None:
        """Let time pass while the process runs and the meters send."""
        while self.now_s < until_s:
            self.now_s = min((int(self.now_s) // _TICK_S + 1) * _TICK_S, until_s)
            self.await_fence()
            if self.now_s % POINT_PERIOD_S == 0:
                self.publish()
                self.now_s += 0.5  # the fence of this time is sent after the points; their time is a whole second
                self.await_fence()
                self.await_stored()

    def play_unread(self, until_s: float, *, confirm: bool = True) -> None:
        """Let time pass while the meters send, and nothing waits for the process."""
        while self.now_s < until_s:
            self.now_s = min(int(self.now_s) + POINT_PERIOD_S, until_s)
            self.publish(confirm=confirm)

    def interval_start(self, number: int) -> int:
        return FIRST_S + number * STEP_S

    def await_sender(self) -> None:
        self.until(self._sender.is_connected)

    def measured(self) -> dict[tuple[int, int], int]:
        """(number of the interval, meter) → energy, as stored."""
        found = {}
        for start_s in self.landing.list_intervals()[0]:
            for path in self.landing.interval_folder(start_s).glob("**/*.parquet"):
                for row in pq.ParquetFile(path).read().to_pylist():
                    found[(start_s - FIRST_S) // STEP_S, row["meter"]] = row["energy_wh"]
        return found

    def wrong_intervals(self) -> list[int]:
        """The numbers of intervals with an energy that no meter has measured."""
        wrong = set()
        for (number, meter), energy_wh in self.measured().items():
            near = [self.energy_wh(meter, one) for one in (number - 1, number) if one >= 0]
            if abs(energy_wh - self.energy_wh(meter, number)) > MAX_ERROR * max(near):
                wrong.add(number)
        return sorted(wrong)

    def reported(self, number: int) -> int:
        return sum(one == number for one, _ in self.measured())
