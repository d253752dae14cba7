"""Moment leakage over days that differ: across a clock change or a change of plan (proof: `leakage.md`).

The recursion of `leakage` runs over a span of intervals, each with its own transitions and losses. The evidence of all
earlier releases enters at the start of the span. The evidence of an infinite stream of equal days enters at its end.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from math import ceil, log

import numpy as np

from murmurate.household.occupancy import OccupancyChains
from murmurate.privacy.leakage import (
    evidence_excess,
    log_odds_distance,
    log_transitions,
    loss_ends,
    periodic_regime,
    span_leakage,
)
from murmurate.units import FloatArray

MAX_EVIDENCE = 1e6  # more evidence than any log contains; assumed for a past that is not examined
_FADED_SHARE = 1e-6  # share of the evidence that is left after the mixing time
_MAX_MIXING_DAYS = 30


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
    day, days = len(chains.period), mixing_time_days(chains)
    time = np.arange(2 * days * day + 1)
    last = time[-1] % len(ends)
    for at, *turn in changes:
        before, after = (regimes[shift] for shift in turn)
        calendar = (time + np.where(time < days * day + at, *turn)) % day
        span = span_leakage(
            before.belief[0],
            log_transitions(chains, day)[calendar],
            ends[time % len(ends)],
            past_evidence=before.past_evidence[0],
            future_evidence=after.future_evidence[last],
        )
        excess = evidence_excess(span.future_evidence[0], before.future_evidence[0])
        earlier = float(before.leakage.max()) + excess
        excess = evidence_excess(span.past_evidence[-1], after.past_evidence[last])
        later = float(after.leakage.max()) + excess + 2 * log_odds_distance(span.belief[-1], after.belief[last])
        worst = max(worst, float(span.leakage.max()), earlier, later)
    return worst
