"""Attack a plan: its zone lives, its prices are published, and every adversary listens.

Bounds come from what the plan claims (`Plan.costs`), releases from its scales: noise that does not keep the claims is
convicted. Every kind of household with something to protect is attacked, under each of its models.
"""

from __future__ import annotations

from murmurate.curator.interval import protect
from murmurate.curator.plan import Plan
from murmurate.lab import audit_posterior, audit_streams, audit_worlds
from murmurate.lab.audit_attack import FALSE_CONVICTION, Attack
from murmurate.lab.audit_bounds import samples_to_find_forgotten
from murmurate.lab.audit_scene import Advance, Mechanism, Scene, Source, by_kind, set_scenes
from murmurate.privacy.noise import RehearsalNoise
from murmurate.privacy.promise import WindowPromise

SAMPLES = 1_000_000  # of a single interval, in each of two worlds

_ON_HABITS = (
    audit_posterior.strong,
    audit_posterior.extreme,
    audit_posterior.public,
)  # of each model
_ON_RELEASES = (
    audit_worlds.one_release,
    audit_worlds.prices,
    audit_worlds.differencing,
    audit_streams.successive,
    audit_streams.window,
)  # of each kind
_PER_KIND = 8  # attacks of `_ON_RELEASES`, not counting windows, and `joint`
_LIVING = 0.1  # share of the progress


def run_audit(
    plan: Plan,
    days: int,
    seed: int,
    progress: Advance,
    *,
    source: Source = RehearsalNoise,
    samples: int = SAMPLES,
    mechanism: Mechanism = protect,
) -> tuple[Attack, ...]:
    """Every attack on `days` days of the plan's zone; `progress` hears shares of the work that sum to 1.

    `source` makes the noise of each release from a seed, `mechanism` makes the release, as `protect` does: hand in
    others to put them on trial. Attacks of one name follow each other, those on the first target first.
    """
    scenes = set_scenes(plan, days, seed, lambda share: progress(_LIVING * share), source, samples, mechanism)
    kinds = by_kind(scenes)
    failure = verdict_failure(scenes)
    tasks = [(attack, scene) for attack in _ON_HABITS for scene in scenes]
    tasks += [(attack, scene) for attack in (*_ON_RELEASES, audit_posterior.joint) for scene in kinds]
    found: list[Attack] = []
    for attack, scene in tasks:
        found.extend(attack(scene, failure))
        progress((1 - _LIVING) / len(tasks))
    order = list(dict.fromkeys(attack.name for attack in found))
    return tuple(sorted(found, key=lambda attack: order.index(attack.name)))


def verdict_failure(scenes: list[Scene]) -> float:
    """The chance of a wrong verdict that each attack may take, so that all of a run keep `FALSE_CONVICTION`."""
    windows = sum(isinstance(cost.promise, WindowPromise) for cost in scenes[0].plan.costs)
    attacks = len(_ON_HABITS) * len(scenes) + (_PER_KIND + windows) * len(by_kind(scenes))
    return FALSE_CONVICTION / attacks


def samples_to_find(plan: Plan, chance: float) -> int | None:
    """Samples from which an audit would find noise that is forgotten with this chance; None: it breaks no promise."""
    scenes = set_scenes(plan, 2, 1, lambda _: None, RehearsalNoise, 16)
    failure = verdict_failure(scenes)
    needed = [samples_to_find_forgotten(scene, chance, failure / 2) for scene in by_kind(scenes)]
    return min((number for number in needed if number is not None), default=None)
