"""Moment leakage where days are not alike: across a change of the clocks, or of the plan (proof: `leakage.md`).

The recursion is that of `leakage`, over a stretch of intervals with laws and losses of their own. Before the stretch
lies the evidence of everything earlier, after it that of an endless stream of equal days.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from math import ceil, log
from typing import NamedTuple

import numpy as np

from murmurate.household.occupancy import Chains
from murmurate.privacy.evidence import OUTWARD, evidence_ranges, rounding
from murmurate.privacy.leakage import (
    Endless,
    Loss,
    chain_laws,
    endless,
    is_certain,
    log_odds_apart,
    log_steps,
    loss_ends,
)
from murmurate.quantities import FloatArray

ANYTHING = 1e6  # more evidence than any log has: what may be known of a past that nobody looks at
_FADED = 1e-6  # share of its evidence that a moment leaves behind once the memory is called faded
_MAX_DAYS = 30


class Stretch(NamedTuple):
    """Leakage of each moment of a stretch, and what its ends hand on."""

    leaked: FloatArray  # [interval, kind]
    past: FloatArray  # [lo and hi, kind] evidence of everything before the last interval
    future: FloatArray  # [lo and hi, kind] evidence of everything after the first interval
    belief: FloatArray  # [state, kind] prior of the last interval, in logarithms


def stretch_leakage(
    belief: FloatArray, steps: FloatArray, ends: FloatArray, *, past: FloatArray, future: FloatArray
) -> Stretch:
    """Leakage of each moment of a stretch of intervals.

    `belief` [state, kind] is the prior of its first interval, `steps` [interval, from, to, kind] the transitions, both
    in logarithms; `ends` [interval, lo and hi, kind] the losses. `past` is the evidence about the first interval from
    before it, `future` that about the last interval from after it.
    """
    laws = chain_laws(belief, steps)
    before = evidence_ranges(laws.past, ends, past, len(ends))
    after = evidence_ranges(laws.future[::-1], ends[::-1], future, len(ends))[::-1]
    leaked = (OUTWARD * (before + ends + after)).max(axis=1)
    leaked = np.where(is_certain(laws.belief), 0.0, leaked + rounding(len(ends), leaked))
    return Stretch(leaked, before[-1], after[0], laws.belief[-1])


def shifted(chains: Chains, intervals: int) -> Chains:
    """The same habits on clocks that are ahead by so many intervals; `initial` is not moved."""
    return replace(chains, period=np.roll(chains.period, -intervals))


def memory_days(chains: Chains) -> int:
    """Days after which a moment has left next to nothing behind, at most 30.

    Evidence passes from one interval to the next shrunk by Birkhoff's coefficient tanh(|log cross ratio|/4) or less.
    """
    step = log_steps(chains, len(chains.period))
    with np.errstate(invalid="ignore"):
        cross = np.abs(step[:, 0, 0] + step[:, 1, 1] - step[:, 0, 1] - step[:, 1, 0])
    kept = np.log(np.maximum(np.tanh(np.where(np.isnan(cross), np.inf, cross) / 4), 1e-300)).sum(axis=0).max()
    return _MAX_DAYS if kept >= 0 else min(_MAX_DAYS, max(1, ceil(log(_FADED) / float(kept))))


def clock_leakage(
    chains: Chains, loss: Loss, shifts: Iterable[int] = (0,), changes: Iterable[tuple[int, int, int]] = ()
) -> float:
    """The largest leakage of any moment of an endless stream whose habits follow the local clock.

    `chains` begin periodically and have a calendar for shift 0; under shift s their clocks are s intervals ahead of
    the releases. A change (first interval of the day after it, shift before, shift after) skips or repeats intervals
    of the calendar.
    """
    ends = loss_ends(chains, loss)
    regimes = {shift: endless(shifted(chains, shift), ends) for shift in shifts}
    worst = max(float(regime.leaked.max()) for regime in regimes.values())
    if worst == np.inf:
        return worst
    days = memory_days(chains)
    return max([worst, *(_across(chains, ends, regimes, change, days) for change in changes)])


def _across(
    chains: Chains, ends: FloatArray, regimes: dict[int, Endless], change: tuple[int, int, int], days: int
) -> float:
    """The largest leakage of any moment before, during and after one change of the clocks."""
    at, *both = change
    before, after = (regimes[shift] for shift in both)
    day = len(chains.period)
    time = np.arange(2 * days * day + 1)
    calendar = (time + np.where(time < days * day + at, *both)) % day
    steps = log_steps(chains, day)[calendar]
    seen = stretch_leakage(
        before.laws.belief[0],
        steps,
        ends[time % len(ends)],
        past=before.before[0],
        future=after.after[time[-1] % len(ends)],
    )
    earlier = float(before.leaked.max()) + evidence_excess(seen.future, before.after[0])
    apart = log_odds_apart(seen.belief, after.laws.belief[time[-1] % len(ends)])
    later = float(after.leaked.max()) + evidence_excess(seen.past, after.before[time[-1] % len(ends)]) + 2 * apart
    return max(float(seen.leaked.max()), earlier, later)


def evidence_excess(found: FloatArray, usual: FloatArray) -> float:
    """By how much a range of evidence [lo and hi, kind] reaches beyond another one."""
    return float((OUTWARD * (found - usual)).clip(0).max())
