"""Audit a plan: simulate its zone, release its prices and run every attack on them.

Bounds come from the claims of the plan (`Plan.costs`), releases from its scales. The audit reports noise that does not
keep the claims. The target is each kind of household with secret occupancy, under each of its models.
"""

from __future__ import annotations

from murmurate.lab.audit import posterior_attacks, release_attacks
from murmurate.lab.audit.attack_result import (
    FAMILYWISE_ERROR_RATE,
    AttackResult,
    samples_to_detect_skipped_noise,
)
from murmurate.lab.audit.simulated_zone import (
    AuditProgress,
    AuditScenario,
    Mechanism,
    NoiseSource,
    make_scenarios,
    merge_scenarios_by_kind,
)
from murmurate.planning.plan import Plan
from murmurate.privacy.noise import SeededNoise
from murmurate.privacy.promise import WindowPromise
from murmurate.release import protect

DEFAULT_SAMPLES = 1_000_000  # of a single interval, from each of two distributions

_ATTACKS_ON_MODELS = (
    posterior_attacks.strong_attack,
    posterior_attacks.extreme_attack,
    posterior_attacks.public_attack,
)  # of each model
_ATTACKS_ON_KINDS = (
    release_attacks.single_release_attacks,
    release_attacks.price_attack,
    release_attacks.differencing_attack,
    release_attacks.successive_releases_attack,
    release_attacks.window_attack,
)  # of each kind
_ATTACKS_PER_KIND = 8  # attacks of `_ATTACKS_ON_KINDS`, not counting windows, and `joint`
_SIMULATION_SHARE = 0.1  # share of the progress


def run_audit(
    plan: Plan,
    days: int,
    seed: int,
    progress: AuditProgress,
    *,
    noise_source: NoiseSource = SeededNoise,
    samples: int = DEFAULT_SAMPLES,
    mechanism: Mechanism = protect,
) -> tuple[AttackResult, ...]:
    """Run every attack on `days` days of the plan's zone. `progress` gets shares of the work that sum to 1.

    `noise_source` makes the noise sampler of each release from a seed. `mechanism` makes the release, like `protect`.
    Pass others to audit them. Results are grouped by the name of the attack, the first target first.
    """
    scenes = make_scenarios(
        plan, days, seed, lambda share: progress(_SIMULATION_SHARE * share), noise_source, samples, mechanism
    )
    kinds = merge_scenarios_by_kind(scenes)
    failure = failure_per_attack(scenes)
    tasks = [(attack, scene) for attack in _ATTACKS_ON_MODELS for scene in scenes]
    tasks += [(attack, scene) for attack in (*_ATTACKS_ON_KINDS, posterior_attacks.joint_attack) for scene in kinds]
    results: list[AttackResult] = []
    for attack, scene in tasks:
        results.extend(attack(scene, failure))
        progress((1 - _SIMULATION_SHARE) / len(tasks))
    order = list(dict.fromkeys(attack.name for attack in results))
    return tuple(sorted(results, key=lambda attack: order.index(attack.name)))


def failure_per_attack(scenarios: list[AuditScenario]) -> float:
    """Return the error probability of each attack, so that a whole run keeps `FAMILYWISE_ERROR_RATE`."""
    windows = sum(isinstance(cost.promise, WindowPromise) for cost in scenarios[0].plan.costs)
    attacks = len(_ATTACKS_ON_MODELS) * len(scenarios) + (_ATTACKS_PER_KIND + windows) * len(
        merge_scenarios_by_kind(scenarios)
    )
    return FAMILYWISE_ERROR_RATE / attacks


def audit_samples_needed(plan: Plan, chance: float) -> int | None:
    """Return the samples that detect noise skipped with this probability, or None if it breaks no promise."""
    scenes = make_scenarios(plan, 2, 1, lambda _: None, SeededNoise, 16)
    failure = failure_per_attack(scenes)
    needed = [samples_to_detect_skipped_noise(scene, chance, failure / 2) for scene in merge_scenarios_by_kind(scenes)]
    return min((number for number in needed if number is not None), default=None)
