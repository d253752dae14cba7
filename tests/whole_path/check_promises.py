"""Check the promises of many sample zones, with the product as it is or with one of its old bugs."""

from __future__ import annotations

from collections import Counter
from contextlib import suppress

from hypothesis import HealthCheck, Phase, Verbosity, given, seed, settings

from tests.whole_path.exact_loss import BrokenPromise, broken_promises
from tests.whole_path.planted_bugs import plant_bug
from tests.whole_path.random_zones import SampleZone, sample_zones
from tests.whole_path.simulated_history import simulate


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
    seen["changes of plan"] += len({released.plan for released in history.intervals}) - 1
    requests = (released.noise_request for released in history.intervals)
    seen.update(request.distribution.value for request in requests if request is not None)
    broken: BrokenPromise | None = next(broken_promises(sample, history), None)
    if broken is not None:
        raise PromiseError(f"{broken.promise}: claimed {broken.claimed:.4f}, true {broken.true:.4f}\n{sample}")


def check_samples(
    samples: int, number: int, bug: str | None = None, *, targeted: bool = False, gaussian: bool = False
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
    @given(sample_zones(targeted, gaussian))
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
