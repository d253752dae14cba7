"""Two consumers of one group against one: how many single readings over MQTT are stored a second, by a process each.

    python -m benchmarks.mqtt_groups [--readings 60000] [--quick]

A sender publishes single readings at QoS 1 to the broker on 127.0.0.1:1883, as in `benchmarks.mqtt_readings`. They are
stored by one process, then by two that share a subscription. Sender and broker take core time too: two consumers can
store twice as many a second only where the machine has cores for all of them: below four cores the ratio of the rates
has no goal. The ratio by core time is what two consumers would store with a core for each. No reading may be lost.
"""

from __future__ import annotations

import multiprocessing
import os
import sys
import time
from math import inf
from pathlib import Path
from secrets import token_hex
from tempfile import TemporaryDirectory
from typing import Any

from tests.support.broker import end_session
from tests.support.waiting import wait_until

from benchmarks.goals import Goals, read_options
from benchmarks.mqtt_readings import NOW_S, SUBSCRIBED_AFTER_S, TIMEOUT_S, Rate, publish_readings
from murmurate.service.ingest.ingest_store import IngestStore
from murmurate.service.ingest.ingestor import ReadingIngestor
from murmurate.service.ingest.meter_registry import MeterRegistry
from murmurate.service.ingest.mqtt_consumer import MqttConsumer
from murmurate.service.landing.append import MergingAppender
from murmurate.service.landing.layout import Landing
from murmurate.service.settings import MqttBroker

MIN_RATIO = 1.7  # of the rates of two consumers and of one, where there are cores for all
CORES_FOR_ALL = 4  # two consumers, the sender, the broker


def consume(mark: str, number: int, folder: Path, facts: Any, stopped: Any) -> None:
    """Store readings until `stopped` is set. `facts` has, for each consumer: connected, readings, core time [us]."""
    landing = Landing.open(folder / "landing")
    ingestor = ReadingIngestor(
        landing=landing,
        registry=MeterRegistry.from_meter_table(folder / "meters.csv"),
        now=lambda: NOW_S,
        grace_s=3600,
        append=MergingAppender(landing, lambda: NOW_S, 3600).append,
    )
    consumer = MqttConsumer(
        broker=MqttBroker(group=mark),
        client_id=f"{mark}-{number}",
        landing=landing,
        current_ingestor=lambda: ingestor,
        store=IngestStore("postgresql://"),  # unsigned readings need no state
        now=lambda: NOW_S,
    )
    thread = consumer.start()
    wait_until(lambda: consumer.is_connected)
    time.sleep(SUBSCRIBED_AFTER_S)
    begin = time.process_time()
    facts[3 * number] = 1
    while not stopped.value:
        facts[3 * number + 1] = ingestor.counts["accepted"]
        facts[3 * number + 2] = int(1e6 * (time.process_time() - begin))
        time.sleep(0.005)
    consumer.stop()
    thread.join()


def measure_group(consumers: int, count: int, folder: Path) -> tuple[Rate, list[int]]:
    """The rate of a group, and how many readings each of its members stored."""
    mark = f"group{token_hex(4)}"
    rows = [f"{meter},street,1000,{mark}-{meter}" for meter in range(count)]
    (folder / "meters.csv").write_text("\n".join(["meter,zone,bound_wh,id", *rows]) + "\n")
    Landing.create(folder / "landing")
    spawn = multiprocessing.get_context("spawn")
    facts, stopped = spawn.Array("q", 3 * consumers, lock=False), spawn.Value("b", 0, lock=False)
    done = spawn.Value("q", 0, lock=False)
    members = [
        spawn.Process(target=consume, args=(mark, number, folder, facts, stopped)) for number in range(consumers)
    ]
    sender = spawn.Process(target=publish_readings, args=(mark, count, done))
    for member in members:
        member.start()
    try:
        assert wait_until(lambda: sum(facts[::3]) == consumers, TIMEOUT_S)
        sender.start()
        while not sum(facts[1::3]):
            time.sleep(0.001)
        begin = time.perf_counter()
        end = begin + TIMEOUT_S
        while (here := sum(facts[1::3])) < count and time.perf_counter() < end:
            done.value = here
            time.sleep(0.002)
        wall_s = time.perf_counter() - begin
        stored = list(facts[1::3])
        assert sum(stored) == count, f"{sum(stored):,} of {count:,} readings were stored"
        return Rate(count / wall_s, sum(facts[2::3]) / 1e6 / count), stored
    finally:
        done.value = count
        stopped.value = 1
        for process in (*members, sender):
            if process.pid is not None:
                process.join()
        for number in range(consumers):
            end_session(f"{mark}-{number}")


def main() -> int:
    """Print both rates and their ratio. Return 1 where a goal is missed."""
    options = read_options(__doc__, readings=60_000, quick=False)
    count = 10_000 if options.quick else options.readings
    cores = os.cpu_count() or 1
    rates = []
    for consumers in (1, 2):
        with TemporaryDirectory(prefix="murmurate-mqtt-") as folder:
            rate, stored = measure_group(consumers, count, Path(folder))
        rates.append(rate)
        print(f"{consumers} in the group: {' + '.join(f'{each:,}' for each in stored)} readings stored")
    one, two = rates
    goals = Goals()
    load = " ".join(f"{each:.0f}" for each in os.getloadavg())
    print(f"{cores} cores for consumers, sender and broker; load {load}")
    goals.print_figure("one consumer stores", one.per_s, "a second")
    goals.print_figure("two consumers store", two.per_s, "a second")
    goals.print_figure("two / one", two.per_s / one.per_s, at_least=MIN_RATIO if cores >= CORES_FOR_ALL else -inf)
    goals.print_figure("one: core time of a reading", 1e6 * one.core_s, "us")
    goals.print_figure("two: core time of a reading, of both", 1e6 * two.core_s, "us")
    goals.print_figure("two / one, by core time, with a core for each", 2 * one.core_s / two.core_s, at_least=MIN_RATIO)
    return goals.exit_status()


if __name__ == "__main__":
    sys.exit(main())
