"""Attacks on one release: two readings of the target, everything else known, and all that the outputs may show.

The worlds differ in the target's reading of one interval. Where the calibration covers any two readings, several pairs
are compared; under `exact` and `robust` the laws of home and away are.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import combinations

import numpy as np

from murmurate.audit import adversary
from murmurate.audit.events import count_residues, count_values, log_ratio
from murmurate.lab.audit_attack import Attack, Candidate, judge_epsilon, judge_ranking, rank, rank_worlds
from murmurate.lab.audit_bounds import interval_bound, most_auc
from murmurate.lab.audit_law import evidence
from murmurate.lab.audit_scene import Scene, publish, readings, release, rest_moments
from murmurate.quantities import FloatArray, IntArray

World = int | FloatArray  # a reading [Wh], or a law of readings

MODULI = (*range(2, 17), 100, 1000)
_OTHER_PAIRS = 4  # a pair of worlds other than the easiest gets one sample in so many
_RESIDUES = 8  # a world of the residues gets one sample in so many
_LEVELS = 4096  # demands at which the curve is looked at


def extremes(scene: Scene) -> tuple[World, World]:
    """The pair of worlds that is easiest to tell apart."""
    return (0, scene.worst.bound_wh) if scene.any_reading else (scene.worst.away, scene.worst.home)


def one_release(scene: Scene, failure: float) -> Iterator[Attack]:
    """Four attacks on the noised demand of one interval: its evidence, its values, the true value, residues."""
    t, worlds = interval_bound(scene).t, _worlds(scene)
    drawn = {name: publish(scene, readings(scene, world, (scene.samples,)), t) for name, world in worlds.items()}
    first, *_, last = drawn
    worst = drawn[first], drawn[last]
    yield interval(scene, worst, failure)
    yield _interval_without_noise(scene, failure)
    yield values(scene, drawn, failure)
    yield forgotten(scene, worst, failure)
    yield residues(scene, failure)


def _worlds(scene: Scene) -> dict[str, World]:
    """Worlds and their names; the first and the last are the easiest to tell apart."""
    away, home = extremes(scene)
    if not scene.any_reading:
        return {"away": away, "home": home}
    top = scene.worst.bound_wh
    return {f"{reading:,} Wh": reading for reading in sorted({0, 1, top - 1, top})}


def interval(scene: Scene, outputs: tuple[IntArray, IntArray], failure: float) -> Attack:
    """The log likelihood ratio of one release: the best that can be made of noise that has the law it should have."""
    attack = _on_one_release(scene, "interval", "all but the target; one noised demand")
    read = evidence(scene.plan, scene.worst, interval_bound(scene).t)
    away, home = (read(output) for output in outputs)
    judged = judge_epsilon(attack, [(["likelihood ratio"], count_values(away, home))], failure / 2)
    return rank_worlds(judged, away, home, failure / 2)


def _interval_without_noise(scene: Scene, failure: float) -> Attack:
    away, home = (readings(scene, world, (scene.samples,)) for world in extremes(scene))
    attack = replace(_on_one_release(scene, "interval", "all but the target; one demand"), bound=None, delta=0.0)
    judged = judge_epsilon(attack, [([""], count_values(away, home))], failure / 2)
    ranked = rank_worlds(judged, away.astype(np.float64), home.astype(np.float64), failure / 2)
    return replace(ranked, noise=False)


def values(scene: Scene, drawn: dict[str, IntArray], failure: float) -> Attack:
    """The noised demands themselves, of any two worlds: sees where the noise ends, and steps in it."""
    attack = _on_one_release(scene, "values", "all but the target; one noised demand")
    first, *_, last = drawn
    candidates = []
    for one, other in combinations(drawn, 2):
        samples = scene.samples if (one, other) == (first, last) else max(4, scene.samples // _OTHER_PAIRS)
        counts = count_values(drawn[one][:samples], drawn[other][:samples])
        candidates.append(([f"{one} against {other}"], counts))
    return judge_epsilon(attack, candidates, failure)


def forgotten(scene: Scene, outputs: tuple[IntArray, IntArray], failure: float) -> Attack:
    """Whether the noised demand is a reading that one world likes: sees noise that is left out now and then.

    The event is chosen beforehand, once for each world, so that all samples measure it.
    """
    attack = _on_one_release(scene, "forgotten", "all but the target; one noised demand")
    gain = scene.worst.home - scene.worst.away
    found = []
    for sign, order in ((1, [1, 0]), (-1, [0, 1])):
        reading = int((sign * gain).argmax())
        hits = np.array([np.count_nonzero(outputs[world] == reading) for world in order])
        found.append((log_ratio(hits, np.full(2, scene.samples), failure / 2, attack.delta), reading))
    measured, reading = max(found)
    ok = measured <= (attack.bound or 0.0)
    worlds = f"published as {reading} Wh"
    return replace(attack, quantity="epsilon", measured=max(0.0, measured), ok=ok, worlds=worlds)


def residues(scene: Scene, failure: float) -> Attack:
    """The noised demand modulo small numbers, in worlds that differ by every residue: sees noise drawn in steps."""
    attack = _on_one_release(scene, "residues", "all but the target; one noised demand, modulo 2..16, 100, 1000")
    t, samples = interval_bound(scene).t, max(16, scene.samples // _RESIDUES)
    away, home = extremes(scene)
    worlds: dict[str, World] = {"away against home": home}
    if scene.any_reading:
        top = scene.worst.bound_wh
        shifts = sorted({*range(1, 17), 50, top - 1, top} & set(range(1, top + 1)))
        worlds = {f"0 against {shift} Wh": shift for shift in shifts}
    known = publish(scene, readings(scene, away, (samples,)), t)
    drawn = {words: publish(scene, readings(scene, world, (samples,)), t) for words, world in worlds.items()}
    candidates: list[Candidate] = []
    for modulus in MODULI:
        apart = [words for words, world in worlds.items() if not isinstance(world, int) or _differ(world, modulus)]
        if apart:
            words = [f"{each}, modulo {modulus}" for each in apart]
            candidates.append((words, count_residues(known, [drawn[each] for each in apart], modulus)))
    return judge_epsilon(attack, candidates, failure)


def _differ(shift: int, modulus: int) -> bool:
    """Each residue of a small modulus once; of a large one, whatever there is."""
    return bool(shift % modulus) and (shift < modulus or modulus > 16)


def prices(scene: Scene, failure: float) -> Iterator[Attack]:
    """The published price of one interval, after curve, tick, floor and cap, at demands where it tells most."""
    attack = _on_one_release(scene, "prices", "all but the target; one price")
    t, worlds = interval_bound(scene).t, extremes(scene)
    samples = max(4, scene.samples // 2)
    candidates = []
    for rest_wh in _levels(scene, t):
        away, home = (release(scene, rest_wh + readings(scene, world, (samples,)), t).price_ticks for world in worlds)
        candidates.append(([f"the others use {rest_wh:,} Wh"], count_values(away, home)))
    yield judge_epsilon(attack, candidates, failure)


def _levels(scene: Scene, t: int) -> list[int]:
    """Demands of the others: the usual one, and those at which the target moves the price most, or meets a limit."""
    curve, top = scene.plan.zone.curve, scene.worst.bound_wh
    usual = round(float(rest_moments(scene)[0][t]))
    edges = [segment.from_wh - top for segment in curve.segments]
    wh = np.unique(np.concatenate([np.linspace(0, 2 * usual + 10 * top, _LEVELS).astype(np.int64), edges]))
    wh = wh[wh >= 0]
    before, after = (curve.price_ticks(wh + reading) for reading in (0, top))
    found = {usual, int(wh[np.abs(after - before).argmax()])}
    for limit in (curve.floor, curve.cap):
        if limit is not None:
            at = int(limit / curve.tick)
            found |= set(wh[(before == at) != (after == at)][:1].tolist())
    return sorted(found)


def differencing(scene: Scene, failure: float) -> Iterator[Attack]:
    """Two zones that differ by the target alone, each with noise of its own: at most twice the loss of one price."""
    t, epsilon, delta = interval_bound(scene)
    lived, pair = scene.days, []
    apart = adversary.differencing(publish(scene, lived.rest_wh + lived.energy_wh), publish(scene, lived.rest_wh))
    for world in extremes(scene):
        with_target = publish(scene, readings(scene, world, (scene.samples,)), t)
        without = publish(scene, np.zeros(scene.samples, np.int64), t)
        pair.append(adversary.differencing(with_target, without))
    attack = Attack(
        name="differencing",
        knows="two zones, with and without the target",
        target=scene.kind.name,
        auc_bound=most_auc(2 * epsilon, delta),
        bound=2 * epsilon,
        delta=delta,
    )
    judged = judge_epsilon(attack, [(["with and without"], count_values(*pair))], failure / 2)
    yield judge_ranking(judged, rank(apart, lived.occupied, scene.hidden), failure / 2)


def _on_one_release(scene: Scene, name: str, knows: str) -> Attack:
    _, epsilon, delta = interval_bound(scene)
    return Attack(name=name, knows=knows, target=scene.kind.name, bound=epsilon, delta=delta)
