"""Moment leakage over days that differ: across a clock change or a change of plan (proof: `leakage.md`).

The recursion of `leakage` runs over a span of intervals, each with its own transitions and losses. The evidence of all
earlier releases enters at the start of the span. The evidence of an infinite stream of equal days enters at its end.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from math import ceil, log
from typing import NamedTuple

import numpy as np

from murmurate.household.occupancy import OccupancyChains
from murmurate.privacy.leakage import (
    OUTWARD_SIGNS,
    PeriodicRegime,
    chain_distributions,
    evidence_ranges,
    is_certain,
    log_odds_distance,
    log_transitions,
    loss_ends,
    periodic_regime,
    rounding_bound,
)
from murmurate.units import FloatArray

MAX_EVIDENCE = 1e6  # more evidence than any log contains; assumed for a past that is not examined
_FADED_SHARE = 1e-6  # share of the evidence that is left after the mixing time
_MAX_MIXING_DAYS = 30


class SpanLeakage(NamedTuple):
    """The leakage of each moment of a span, and the evidence and belief at its ends."""

    leakage: FloatArray  # [interval, kind]
    past_evidence: FloatArray  # [lo and hi, kind] evidence of everything before the last interval
    future_evidence: FloatArray  # [lo and hi, kind] evidence of everything after the first interval
    belief: FloatArray  # [state, kind] prior of the last interval, in logarithms


def span_leakage(
    belief: FloatArray, steps: FloatArray, ends: FloatArray, *, past_evidence: FloatArray, future_evidence: FloatArray
) -> SpanLeakage:
    """Return the leakage of each moment of a span of intervals.

    `belief` [state, kind] is the prior of the first interval and `steps` [interval, from, to, kind] are the
    transitions, both in logarithms. `ends` [interval, lo and hi, kind] are the losses. `past_evidence` is the evidence
    from before the first interval, `future_evidence` that from after the last interval.
    """
    distributions = chain_distributions(belief, steps)
    before = evidence_ranges(distributions.backward, ends, past_evidence, len(ends))
    after = evidence_ranges(distributions.forward[::-1], ends[::-1], future_evidence, len(ends))[::-1]
    leaked = (OUTWARD_SIGNS * (before + ends + after)).max(axis=1)
    leaked = np.where(is_certain(distributions.belief), 0.0, leaked + rounding_bound(len(ends), leaked))
    return SpanLeakage(leaked, before[-1], after[0], distributions.belief[-1])


def shift_calendar(chains: OccupancyChains, intervals: int) -> OccupancyChains:
    """Return the same habits on a clock that is ahead by `intervals` intervals. `initial` is not shifted."""
    return replace(chains, period=np.roll(chains.period, -intervals))


def mixing_time_days(chains: OccupancyChains) -> int:
    """Return the days after which at most a millionth of the evidence about a moment is left, at most 30.

    From one interval to the next, evidence shrinks by Birkhoff's coefficient tanh(|log cross ratio|/4) or less.
    """
    step = log_transitions(chains, len(chains.period))
    with np.errstate(invalid="ignore"):
        cross = np.abs(step[:, 0, 0] + step[:, 1, 1] - step[:, 0, 1] - step[:, 1, 0])
    log_factor = np.log(np.maximum(np.tanh(np.where(np.isnan(cross), np.inf, cross) / 4), 1e-300)).sum(axis=0).max()
    return (
        _MAX_MIXING_DAYS
        if log_factor >= 0
        else min(_MAX_MIXING_DAYS, max(1, ceil(log(_FADED_SHARE) / float(log_factor))))
    )


def local_time_leakage(
    chains: OccupancyChains,
    loss: FloatArray,
    shifts: Iterable[int] = (0,),
    changes: Iterable[tuple[int, int, int]] = (),
) -> float:
    """Return the largest leakage of any moment of an infinite stream whose habits follow the local clock.

    `chains` start from the periodic prior and have a calendar for shift 0. Under shift s their clock is s intervals
    ahead of the releases. A change (first interval of the day after it, shift before, shift after) skips or repeats
    intervals of the calendar.
    """
    ends = loss_ends(chains, loss)
    regimes = {shift: periodic_regime(shift_calendar(chains, shift), ends) for shift in shifts}
    worst = max(float(regime.leakage.max()) for regime in regimes.values())
    if worst == np.inf:
        return worst
    days = mixing_time_days(chains)
    return max([worst, *(_leakage_across_change(chains, ends, regimes, change, days) for change in changes)])


def _leakage_across_change(
    chains: OccupancyChains,
    ends: FloatArray,
    regimes: dict[int, PeriodicRegime],
    change: tuple[int, int, int],
    days: int,
) -> float:
    """Return the largest leakage of any moment before, during and after one clock change."""
    at, *shifts = change
    before, after = (regimes[shift] for shift in shifts)
    day = len(chains.period)
    time = np.arange(2 * days * day + 1)
    calendar = (time + np.where(time < days * day + at, *shifts)) % day
    steps = log_transitions(chains, day)[calendar]
    span = span_leakage(
        before.distributions.belief[0],
        steps,
        ends[time % len(ends)],
        past_evidence=before.past_evidence[0],
        future_evidence=after.future_evidence[time[-1] % len(ends)],
    )
    earlier = float(before.leakage.max()) + evidence_excess(span.future_evidence, before.future_evidence[0])
    distance = log_odds_distance(span.belief, after.distributions.belief[time[-1] % len(ends)])
    later = (
        float(after.leakage.max())
        + evidence_excess(span.past_evidence, after.past_evidence[time[-1] % len(ends)])
        + 2 * distance
    )
    return max(float(span.leakage.max()), earlier, later)


def evidence_excess(evidence: FloatArray, reference: FloatArray) -> float:
    """Return how far a range of evidence [lo and hi, kind] extends beyond a reference range."""
    return float((OUTWARD_SIGNS * (evidence - reference)).clip(0).max())
