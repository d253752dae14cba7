"""Check the laws of the whole path on many samples, with the product as it is or with a planted bug."""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from random import Random

from hypothesis import HealthCheck, Phase, Verbosity, given, seed, settings

from tests.whole_path.exact_loss import BrokenPromise, broken_promises
from tests.whole_path.habit_votes import random_votes, worst_vote
from tests.whole_path.imported_towns import broken_counts, random_town
from tests.whole_path.planted_bugs import plant_bug
from tests.whole_path.random_worlds import random_world
from tests.whole_path.random_zones import SampleZone, sample_zones
from tests.whole_path.simulated_history import LOW, simulate
from tests.whole_path.world_laws import broken_laws


class PromiseError(AssertionError):
    """A promise is broken."""


def check_sample(sample: SampleZone, seen: Counter[str]) -> None:
    """Raise PromiseError if the exact loss of all that this sample publishes exceeds a claim of its plan."""
    history = simulate(sample)
    seen["samples"] += 1
    if history is None:
        seen["refused"] += 1
        return
    seen["releases"] += len(history.intervals)
    plans = len({released.plan for released in history.intervals})
    seen["changes of plan"] += plans - 1
    seen["three plans of a sample zone"] += plans == 3
    seen["learned habits of a sample zone"] += bool(sample.files[0].learned)
    target = [m for m in sample.meters if (m.kind, m.household) == (sample.target, 0)]
    for released in history.intervals:
        demand_wh = dict(zip(history.shown_wh, released.demand_wh, strict=True))
        if released.noise_request is not None and (demand_wh[LOW] or 0) < (demand_wh[0] or 0):
            seen["releases about a household that feeds in"] += 1
            seen["releases about one with two such meters"] += sum(m.export_bound_wh > 0 for m in target) > 1
    predicted = [bool(sample.files[released.plan].forecast) for released in history.intervals]
    seen["predicted releases"] += sum(predicted)
    requests = (released.noise_request for released in history.intervals)
    seen.update(request.distribution.value for request in requests if request is not None)
    broken: BrokenPromise | None = next(broken_promises(sample, history), None)
    if broken is not None:
        raise PromiseError(f"{broken.promise}: claimed {broken.claimed:.4f}, true {broken.true:.4f}\n{sample}")


def check_samples(
    samples: int, number: int, bug: str | None = None, focus: str = ""
) -> tuple[Counter[str], str | None]:
    """Return counts over at most this many samples, and the first broken promise, which ends the check."""
    seen: Counter[str] = Counter()
    violations: list[str] = []

    @seed(number)
    @settings(
        max_examples=samples,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
        phases=[Phase.generate],
        report_multiple_bugs=False,
        verbosity=Verbosity.quiet,
    )
    @given(sample_zones(focus))
    def check_one(sample: SampleZone) -> None:
        if violations:
            raise PromiseError(violations[0])
        try:
            check_sample(sample, seen)
        except PromiseError as error:
            violations.append(str(error))
            raise

    with plant_bug(bug), suppress(PromiseError):
        check_one()
    return seen, violations[0] if violations else None


def check_worlds(worlds: int, number: int, bug: str | None = None) -> tuple[Counter[str], str | None]:
    """Return counts over at most this many worlds, and the first broken law, which ends the check."""
    seen: Counter[str] = Counter()
    with plant_bug(bug):
        for at in range(worlds):
            world = random_world(Random(f"{number} {at}"))  # noqa: S311  a sample
            broken = next(broken_laws(world, seen), None)
            if broken is not None:
                return seen, f"{broken}\n{world}"
    return seen, None


def check_votes(samples: int, number: int, bug: str | None = None) -> tuple[Counter[str], str | None]:
    """Return counts over at most this many samples of habits, and the first vote that weighs too much."""
    seen: Counter[str] = Counter()
    with plant_bug(bug):
        for at in range(samples):
            votes = random_votes(Random(f"{number} {at}"))  # noqa: S311  a sample
            seen["samples of habits"] += 1
            seen["samples of habits with types of day"] += votes.cells.day_types > 1
            if (worst := worst_vote(votes)) > float(votes.epsilon) * (1 + 1e-9):
                return seen, f"epsilon of a sample: claimed {votes.epsilon}, true {worst:.4f}\n{votes}"
    return seen, None


def check_towns(towns: int, number: int, bug: str | None = None) -> tuple[Counter[str], str | None]:
    """Return counts over at most this many imported towns, and the first plan that does not fit its households."""
    seen: Counter[str] = Counter()
    with plant_bug(bug):
        for at in range(towns):
            town = random_town(Random(f"{number} {at}"))  # noqa: S311  a sample
            if (broken := next(broken_counts(town, seen), None)) is not None:
                return seen, f"{broken}\n{town}"
    return seen, None
