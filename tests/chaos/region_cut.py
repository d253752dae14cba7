"""Cut a region off from the public log for two whole intervals: no zone may get two draws, and no other region waits.

    python -m tests.chaos.region_cut --cuts 9 [--regions 3] [--break draw-again | one-link]

Each region has a service, a state and a landing of its own; all have one log, which each reaches through a link of its
own. A link is cut in the midst of an append: the log has taken the tile and the answer is lost (`answer`), it gets
nothing (`request`), or it gets the commit after the cut (`late`). Meanwhile the service of the region waits (`waits`),
or is killed and started elsewhere, and runs at both places after the cut (`moved`), or a second one works on the same
state past the cut (`beside`). The cut lasts until the other regions have decided the interval of the append and the two
after it. They have time until those prices are due, by the clock of the log: a slow machine is no violation.

What must hold:

    the other regions' prices are in the log before they are due
    in the end each zone has one row for each interval, signed and chained (`murmurate log verify`), and each state has
    the same tiles
    one signed tile of each shard and interval exists, in the log, on the links in both directions and in the states,
    where each draft is kept that was ever stored
    no reader of any region is shown two prices of one interval

Bugs that this must find: with `--break draw-again` the publisher of the last region draws again where no answer came,
with `--break one-link` all regions share a link.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import sys
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Iterable, Sequence
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass, field
from hashlib import sha256
from itertools import product
from pathlib import Path
from typing import NamedTuple

import numpy as np

from murmurate.service.landing.append import append_readings
from murmurate.service.landing.layout import Landing
from murmurate.types import Readings
from tests.chaos.meters import zone_file
from tests.chaos.oracle import Verdict, check_chain
from tests.chaos.public_watch import PublicWatch
from tests.support.postgres_cluster import Cluster, Clusters, clusters
from tests.support.postgres_proxy import NetworkFault, Proxy
from tests.support.postgres_stores import released_kinds
from tests.support.running_service import RunningService, ServiceOperator
from tests.support.waiting import wait_until

STEP_S, GRACE_S, LEAD = 900, 60, 40
STEP_WALL_S = 1.5  # how long an interval takes on two cores that do nothing else
MAX_SLOWDOWN = 2.0
START_S = 3.0  # from the settings of the services to the first interval
HOMES = 50  # of a zone, as its plan says
WHOLE_INTERVALS = 2  # for which a region is cut off, besides the rest of the one in which that began
REPORTED_AHEAD = 60  # intervals: one without readings has no draw that could be a second one
TAKEN_S = 1.0  # from a commit to the reset of its connection
LATE_S = 1.0  # from the end of a cut to a late commit
TIMEOUT_S = 180.0
DRAW_AGAIN, ONE_LINK = "draw-again", "one-link"
MOMENTS, ANSWERS = ("request", "late", "answer"), ("moved", "waits", "beside")
_HEADER = re.compile(rb'\{"count":[0-9]+,[^\n]*\}(?=\n)')  # of a tile
_KEEP_DRAFTS = """
    CREATE SCHEMA witness;
    CREATE TABLE witness.draft (body bytea);
    CREATE FUNCTION witness.keep() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        INSERT INTO witness.draft VALUES (NEW.body);
        RETURN NULL;
    END $$;
    CREATE TRIGGER witness AFTER INSERT OR UPDATE OF body ON curator.tile FOR EACH ROW EXECUTE FUNCTION witness.keep();
"""


class Cut(NamedTuple):
    """When a link is cut, and what the region's service does."""

    moment: str
    answer: str


CUTS = tuple(Cut(*each) for each in product(MOMENTS, ANSWERS))


class SignedTiles:
    """The signed releases that were seen anywhere, by shard and interval. Any thread may add some."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._hashes: dict[tuple[str, int], set[bytes]] = defaultdict(set)

    def add_all_in(self, data: bytes) -> None:
        """Add each release whose header is somewhere in these bytes."""
        for header in _HEADER.findall(data):
            members = json.loads(header)
            if members["kind"] == "release":
                with self._lock:
                    self._hashes[members["shard"], members["interval"]].add(sha256(header).digest())

    def __len__(self) -> int:
        return len(self._hashes)

    def count_of(self, shard: str) -> int:
        return sum(key[0] == shard for key in self._hashes)

    def drawn_twice(self) -> list[tuple[str, int]]:
        return sorted(key for key, hashes in self._hashes.items() if len(hashes) > 1)


class RegionLink(Proxy):
    """The way from a region to the log. It sees each tile that passes, and can be cut in the midst of an append."""

    def __init__(self, target: int, seen: SignedTiles) -> None:
        self._seen, self._moment = seen, ""
        self.was_cut = threading.Event()
        super().__init__(target, word=b"public_log.append")

    @property
    def url(self) -> str:
        return f"postgresql://postgres@127.0.0.1:{self.port}/postgres?sslmode=disable&gssencmode=disable"

    def on_bytes(self, data: bytes) -> None:
        self._seen.add_all_in(data)

    def cut_in_append(self, moment: str) -> None:
        """Be cut in the midst of the next append."""
        self.was_cut.clear()
        self._moment = moment

    def heal(self) -> None:
        self.fault = NetworkFault.FORWARD

    def _drops_response(self) -> bool:
        with self._lock:
            moment, self._moment = self._moment, ""
        if not moment:
            return False
        self.fault = NetworkFault.HANG
        self.was_cut.set()
        if moment == "request":
            raise ConnectionResetError
        if moment == "late":
            while self.fault is not NetworkFault.FORWARD and not self._closing:
                time.sleep(0.05)
            time.sleep(LATE_S)
        return True


class Region:
    """A state, a landing, zones, a link to the log, and a service that is not started yet."""

    def __init__(
        self, stack: ExitStack, folder: Path, name: str, private: Clusters, log: Cluster, seen: SignedTiles
    ) -> None:
        self.name, self.zones = name, (f"{name} a", f"{name} b")
        self.state = private.new(name).start()
        self.link, self.detour = (stack.enter_context(closing(RegionLink(log.port, seen))) for _ in range(2))
        first_s = int(time.time()) // STEP_S * STEP_S - 30 * 86_400  # every interval is over by the log's clock
        root = folder / name
        root.mkdir()
        dsns = {"state": self.state.dsn, "log": self.link.url}
        self.operator = ServiceOperator(root, dsns, first_s=first_s, speed=STEP_S / STEP_WALL_S)
        meters = [f"{row},{zone},1000" for row, zone in enumerate(zone for zone in self.zones for _ in range(HOMES))]
        files = {zone: zone_file("harbour").replace('"harbour"', f'"{zone}"') for zone in self.zones}
        plans = {zone.replace(" ", "-"): text for zone, text in files.items()}
        self.operator.prepare(plans, "\n".join(["meter,zone,bound_wh", *meters]) + "\n", lead=LEAD, clients={})
        self.state.execute(_KEEP_DRAFTS)
        (self.shard,) = (shard for (shard,) in self.state.execute("SELECT shard FROM curator.shard"))
        self.first = self._reported = first_s // STEP_S
        stack.callback(self.operator.stop_services)

    def report(self, until: int) -> None:
        """Have every home report each interval up to one."""
        landing, rng = Landing.open(self.operator.folder / "landing"), np.random.default_rng(1)
        for interval in range(self._reported, until):
            meter = np.arange(HOMES * len(self.zones))
            append_readings(
                landing, interval * STEP_S, Readings(meter=meter, energy_wh=rng.integers(0, 900, len(meter)))
            )
        self._reported = max(self._reported, until)

    def add_service(self, *, past_the_cut: bool = False) -> RunningService:
        """A service on the same state and landing. It may reach the log by another way."""
        extra = self.operator.extra
        self.operator.extra = extra | ({"MURMURATE_LOG": self.detour.url} if past_the_cut else {})
        service = self.operator.add_service(f"grace_s = {GRACE_S}\nkeep_days = 3650")
        self.operator.extra = extra
        return service


def kill_machine(service: RunningService) -> None:
    """End each process of a service at once."""
    children = service.process_ids()
    service.kill()
    for pid in children:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


@dataclass(slots=True)
class Outcome:
    """What was seen."""

    cuts: int = 0
    missing: int = 0  # intervals of a region that the log did not have when its cut ended
    in_time: int = 0  # intervals of other regions, which were decided meanwhile
    earliest_s: float = float("inf")  # the least time left before such a price was due
    tiles: int = 0  # releases whose signed tiles were looked for everywhere
    prices_shown: int = 0  # answers to readers
    verdict: Verdict = field(default_factory=Verdict)


class RegionsWorld:
    """All regions and the log. The services run."""

    def __init__(self, stack: ExitStack, folder: Path, count: int, bug: str) -> None:
        private = stack.enter_context(clusters())
        self.log, self.outcome, self.seen = private.new("log").start(), Outcome(), SignedTiles()
        self._meanwhile: set[tuple[str, int]] = set()  # shards and intervals of other regions during a cut
        names = ("north", "south", "west", "east")[:count]
        self.regions = [Region(stack, folder, name, private, self.log, self.seen) for name in names]
        if bug == DRAW_AGAIN:
            self.regions[-1].operator.extra["MURMURATE_TEST_DRAW_AGAIN"] = "1"
        if bug == ONE_LINK:
            for region in self.regions[1:]:
                region.operator.extra |= {"MURMURATE_LOG": self.regions[0].link.url}
        self.slow = min(MAX_SLOWDOWN, max(region.operator.slow for region in self.regions))
        self.regions[0].operator.slow = self.slow
        self.regions[0].operator.begin(in_s=START_S)
        self.clock = self.regions[0].operator.clock
        for region in self.regions:
            region.operator.clock = self.clock
            region.report(region.first + REPORTED_AHEAD)
            region.add_service().start()
        for region in self.regions:
            region.operator.services[0].wait_for(region.operator.services[0].is_ready)
        services = [region.operator.services[0] for region in self.regions]
        zones = [zone for region in self.regions for zone in region.zones]
        self.watch = PublicWatch(self.regions[0].operator, services, zones)
        stack.callback(self.watch.stop)

    def decided(self, regions: Iterable[Region]) -> int:
        """The last interval that the log has of all these regions."""
        shards = [region.shard for region in regions]
        return self.log.execute("SELECT min(interval) FROM public_log.head WHERE shard = ANY(%s)", (shards,))[0][0]

    def expect_decided(self, regions: Sequence[Region], interval: int, when: str) -> None:
        if not wait_until(lambda: self.decided(regions) >= interval, TIMEOUT_S):
            self.outcome.verdict.violations.append(
                f"gap: interval {interval} is not decided three minutes after {when}"
            )

    def play(self, region: Region, cut: Cut) -> None:
        """Cut a region off, wait until the others have gone on, and heal it."""
        others = [each for each in self.regions if each is not region]
        before = self.decided(self.regions)
        for each in self.regions:
            each.report(before + REPORTED_AHEAD)
        self.expect_decided(self.regions, before + 1, "the begin")
        region.link.cut_in_append(cut.moment)
        if not region.link.was_cut.wait(TIMEOUT_S):
            raise TimeoutError(f"{region.name} appends nothing")
        if cut.moment == "answer":  # the tile is taken; then each connection is reset
            time.sleep(TAKEN_S)
            region.link.fault = NetworkFault.REFUSE
        first = self.decided([region]) + (cut.moment != "answer")  # the interval of the append
        through, (here, *_) = first + WHOLE_INTERVALS, region.operator.services
        if cut.answer == "moved":
            kill_machine(here)
        there = region.add_service(past_the_cut=cut.answer == "beside").start() if cut.answer != "waits" else None
        due_s = self.clock.wall_at((through + LEAD) * STEP_S)
        wait_until(lambda: self.decided(others) >= through or time.time() > due_s, TIMEOUT_S + due_s - time.time())
        self.outcome.missing += max(0, through - self.decided([region]))
        self._meanwhile |= {(each.shard, interval) for each in others for interval in range(first, through + 1)}
        region.link.heal()
        self.outcome.cuts += 1
        if cut.answer == "moved":
            here.start()
        for service in (here, there) if there is not None else ():
            service.wait_for(service.is_ready)  # from now on two publishers have one state
        self.expect_decided(self.regions, through + 1 + (there is not None), "a cut")
        if there is not None:
            kill_machine(there)
            region.operator.services.remove(there)

    def judge(self) -> Outcome:
        """Stop everything and check all that must hold."""
        last, verdict = self.decided(self.regions), self.outcome.verdict
        self.expect_decided(self.regions, last + 1, "the last cut")
        self.watch.stop()
        for region in self.regions:
            region.operator.stop_services()
        verdict.violations += sorted(set(self.watch.changed))
        self.outcome.prices_shown = sum(n for name, n in self.watch.counts.items() if name.endswith("200"))
        query = "SELECT shard, interval, extract(epoch FROM taken)::float8, body FROM public_log.tile ORDER BY seq"
        rows = self.log.execute(query)
        for region in self.regions:
            for zone in region.zones:
                intervals = range(region.first, last + 1)
                check_chain(zone, released_kinds(self.log.dsn, zone), intervals, verdict)
            self._check_state(region, [bytes(body) for shard, *_, body in rows if shard == region.shard])
        names = {region.shard: region.name for region in self.regions}
        twice = [(names[shard], interval) for shard, interval in self.seen.drawn_twice()]
        verdict.violations += [f"drawn twice: interval {interval} of {name}" for name, interval in twice]
        self.outcome.tiles = len(self.seen)
        for shard, interval, taken_s, body in rows:
            left_s = self.clock.wall_at((interval + LEAD) * STEP_S) - taken_s
            if (shard, interval) in self._meanwhile and b'"kind":"release"' in bytes(body).split(b"\n")[0]:
                self.outcome.in_time += left_s > 0
                self.outcome.earliest_s = min(self.outcome.earliest_s, left_s)
                verdict.violations += [f"late: interval {interval} of {shard}"] if left_s <= 0 else []
        verified = self.regions[0].operator.run(f"murmurate log verify '{self.regions[0].detour.url}'")
        if "Everything holds." not in verified:
            verdict.violations.append(f"verify: {verified[-500:]}")
        return self.outcome

    def _check_state(self, region: Region, public: list[bytes]) -> None:
        """A state holds what the log has of its shard and nothing else. Add what it ever drafted to `seen`."""
        on_links = self.seen.count_of(region.shard)
        drafts = [bytes(body) for (body,) in region.state.execute("SELECT body FROM witness.draft")]
        stored = region.state.execute("SELECT body FROM curator.tile ORDER BY seq")
        if [bytes(body) for (body,) in stored] != public:
            self.outcome.verdict.violations.append(f"wrong: the state of {region.name} has not what the log has")
        for body in (*drafts, *public):
            self.seen.add_all_in(body)
        releases = len(public) - 1  # the first tile opens the shard
        if on_links < releases - 1:
            text = f"wrong: {on_links} of {releases} releases of {region.name} were seen on the links"
            self.outcome.verdict.violations.append(text)


def run_cuts(folder: Path, cuts: Sequence[Cut], *, regions: int = 2, bug: str = "") -> Outcome:
    """Cut one region after the other."""
    with ExitStack() as stack:
        world = RegionsWorld(stack, folder, regions, bug)
        for number, cut in enumerate(cuts):
            world.play(world.regions[number % regions], cut)
            if world.outcome.verdict.violations:
                break
        return world.judge()


def main() -> int:
    """Print what was seen. Return 1 where something is wrong, or a planted bug was not found."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cuts", type=int, default=len(CUTS))
    parser.add_argument("--regions", type=int, choices=(2, 3, 4), default=3)
    parser.add_argument("--break", dest="bug", choices=(DRAW_AGAIN, ONE_LINK), default="")
    options = parser.parse_args()
    begin = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="murmurate-regions-") as folder:
        cuts = [CUTS[number % len(CUTS)] for number in range(options.cuts)]
        seen = run_cuts(Path(folder), cuts, regions=options.regions, bug=options.bug)
    counts, violations = seen.verdict.counts, seen.verdict.violations
    sys.stdout.writelines(f"VIOLATION {text}\n" for text in violations[:20])
    if not seen.missing or not counts["measured"]:
        sys.stdout.write("VIOLATION nothing was cut off or measured, so nothing was tested\n")
        return 1
    sys.stdout.write(
        f"{seen.cuts} cuts of {options.regions} regions, {time.monotonic() - begin:.0f} s\n"
        f"{seen.missing} intervals of a region were missing when its cut ended\n"
        f"{seen.in_time} intervals of other regions decided meanwhile, {seen.earliest_s:.1f} s before due or earlier\n"
        f"rows: {', '.join(f'{count} {kind}' for kind, count in sorted(counts.items()))}\n"
        f"{seen.tiles} releases, {sum(text.startswith('drawn twice') for text in violations)} of them drawn twice\n"
        f"{seen.prices_shown} answers to readers, {len(violations)} violations\n"
    )
    wanted = {DRAW_AGAIN: "drawn twice", ONE_LINK: "late"}.get(options.bug)
    return int(bool(violations)) if wanted is None else int(not any(text.startswith(wanted) for text in violations))


if __name__ == "__main__":
    sys.exit(main())
