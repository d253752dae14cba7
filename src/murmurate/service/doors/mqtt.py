"""The door for brokers: interval energy in batches, and registers of single meters. Who may publish what is the
broker's business; a meter with a key in the table must sign as well.

    murmurate/readings                  JSON lines or Parquet, as over HTTP
    smartmeter/<meter>/ACTIVE_ENERGY_P  where a register stands
"""

from __future__ import annotations

import queue
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from threading import Event, Thread

import psycopg
from paho.mqtt.client import MQTTMessage

from murmurate.errors import MurmurateError, ReadingError
from murmurate.service.broker import connect
from murmurate.service.doors.formats import json_lines
from murmurate.service.doors.intake import STRANGER, Intake
from murmurate.service.doors.memory import DoorMemory
from murmurate.service.doors.parquet_body import parquet_rows
from murmurate.service.doors.register import Point, Register, parse_point
from murmurate.service.doors.roster import NOBODY
from murmurate.service.doors.slip import Receipt, Slip
from murmurate.service.saying import Say
from murmurate.service.settings import Broker

BATCHES = "murmurate/readings"
REGISTERS = "smartmeter/+/ACTIVE_ENERGY_P"
MOST_AT_ONCE = 10_000
MOST_BYTES = 32 * 2**20
_AGAIN_S = 5.0
_Arrived = tuple[MQTTMessage, int]  # a message, and when it came [s of UTC]


@dataclass(slots=True, kw_only=True)
class MqttDoor:
    """Messages wait until a thread has kept what they carry; then they are acknowledged, as many at once as came."""

    broker: Broker
    name: str
    intake: Callable[[], Intake]
    memory: DoorMemory
    now: Callable[[], float]
    say: Say
    _waiting: queue.SimpleQueue[_Arrived] = field(default_factory=queue.SimpleQueue, init=False)
    _stopped: Event = field(default_factory=Event, init=False)

    def run(self) -> None:
        """Take messages until `stop`."""
        client = connect(self.broker, self.name, self.say, topics=(BATCHES, REGISTERS), heard=self._heard)
        try:
            while not self._stopped.is_set():
                if (messages := self._some()) and self._keep(messages):
                    for message, _ in messages:
                        client.ack(message.mid, message.qos)
        finally:
            client.disconnect()
            client.loop_stop()

    def start(self, died: Callable[[], None] = lambda: None) -> Thread:
        """Take messages in a thread of its own. `died` is called should it end by itself: half a service is none."""

        def run() -> None:
            try:
                self.run()
            except Exception as error:  # noqa: BLE001  whatever it is, readings no longer come in
                self.say("broken", door="mqtt", why=type(error).__name__)
                died()

        thread = Thread(target=run, name="mqtt", daemon=True)
        thread.start()
        return thread

    def stop(self) -> None:
        self._stopped.set()

    def _heard(self, message: MQTTMessage) -> None:
        """Note when a message came: it stays so old however often it must be tried."""
        self._waiting.put((message, int(self.now())))

    def _some(self) -> list[_Arrived]:
        """All that wait, once one does."""
        messages: list[_Arrived] = []
        with suppress(queue.Empty):
            messages.append(self._waiting.get(timeout=0.2))
            while len(messages) < MOST_AT_ONCE:
                messages.append(self._waiting.get_nowait())
        return messages

    def _keep(self, messages: list[_Arrived]) -> bool:
        """Keep what they carry; while the disk or the state fails, try again. What cannot be read is only counted."""
        while not self._stopped.is_set():
            try:
                self._take(messages)
            except (OSError, psycopg.Error) as error:
                self.say("failing", door="mqtt", why=type(error).__name__)
                time.sleep(_AGAIN_S)
            else:
                return True
        return False

    def _take(self, messages: list[_Arrived]) -> None:
        intake, refused, points = self.intake(), 0, []
        for message, received_s in messages:
            try:
                if len(message.payload) > MOST_BYTES:
                    raise ReadingError("message", "too large", f"must have at most {MOST_BYTES:,} bytes")
                if message.topic == BATCHES:
                    self._take_batch(intake, bytes(message.payload))
                else:
                    points.append((message.topic.split("/")[1], parse_point(bytes(message.payload), received_s)))
            except MurmurateError:
                refused += 1
        intake.counts["refused"] += refused
        if points:
            self._take_points(intake, points)

    @staticmethod
    def _take_batch(intake: Intake, payload: bytes) -> None:
        read = parquet_rows if payload.startswith(b"PAR1") else json_lines
        slip, refusals = read(payload, interval_s=intake.landing.interval_s)
        intake.take(slip, None, Receipt(refused=refusals))

    def _take_points(self, intake: Intake, points: Iterable[tuple[str, Point]]) -> None:
        """Registers become energy. They are remembered after the energy is safe: what is lost is worked out again.

        Of two points of one second the first counts: the sort leaves them in the order in which they came.
        """
        by_place: dict[int, list[Point]] = {}
        named = list(points)
        for place, (_, point) in zip(intake.roster.find([name for name, _ in named]).tolist(), named, strict=True):
            by_place.setdefault(place, []).append(point)
        strangers = by_place.pop(NOBODY, [])
        numbers = intake.roster.number
        known = self.memory.registers(int(numbers[place]) for place in by_place)
        moved: dict[int, Register] = {}
        rows = []
        for place, found in by_place.items():
            number = int(numbers[place])
            register: Register | None = known.get(number)
            for point in sorted(found, key=lambda one: one.at_s):
                register, energies = Register.follow(register, point, interval_s=intake.landing.interval_s)
                rows += [(number, start_s, energy_wh) for start_s, energy_wh in energies]
                moved[number] = register
        intake.take(Slip.numbered(rows), None, Receipt(refused=dict.fromkeys(range(-len(strangers), 0), STRANGER)))
        self.memory.keep_registers(moved)
