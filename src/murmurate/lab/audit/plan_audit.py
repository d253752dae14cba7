"""Audit a plan with built-in attacks and with those of a user: what `murmurate audit` and `mm.audit` call."""

from __future__ import annotations

from collections.abc import Sequence

from murmurate.errors import MurmurateError, UnknownNameError, require_members
from murmurate.extras import require_extra
from murmurate.lab.audit.attack import (
    AUDIT_SEED,
    BUILT_IN_ATTACKS,
    DEFAULT_DAYS,
    DEFAULT_SAMPLES,
    Attack,
    AttackResult,
    AuditProgress,
    Mechanism,
    NoiseSource,
)
from murmurate.planning.plan import Plan
from murmurate.privacy.noise import SeededNoise
from murmurate.release import protect


def audit(
    plan: Plan,
    attacks: Sequence[str | Attack] = BUILT_IN_ATTACKS,
    *,
    days: int = DEFAULT_DAYS,
    samples: int = DEFAULT_SAMPLES,
    seed: int = AUDIT_SEED,
    noise_source: NoiseSource = SeededNoise,
    mechanism: Mechanism = protect,
    progress: AuditProgress = lambda _: None,
) -> tuple[AttackResult, ...]:
    """Attack a plan: simulate its zone, release its prices, and compare what attackers learn with what it allows.

    This is what `murmurate audit` does. Bounds come from the claims of the plan, releases from its noise or from yours.
    All verdicts of a run together convict a plan that keeps its promise with a probability below 1e-5. An attack that
    fails proves nothing: the proof of the plan does.

    Args:
        plan: The plan.
        attacks: Built-in attacks by name, your own as objects (see `Attack`), or both. The default is all built-in
            ones. Your own attack is run on one interval, and on each window that the plan promises.
        days: Simulated days, 2 or more; more days detect smaller leaks.
        samples: Releases drawn in each of two cases, 1,000 or more; more samples detect rarer faults.
        seed: Seed of the simulation. Equal seeds give equal results.
        noise_source: Makes a `NoiseSampler` from a NumPy `SeedSequence`: pass your own noise to attack it.
        mechanism: Makes a release, with the parameters of `protect`: pass your own to attack it.
        progress: Is called with shares of the work, which sum to 1.

    Returns:
        The results, by attack, the first target first. Some attacks are repeated without noise, for comparison.

    Raises:
        MissingExtraError: SciPy is not installed. The message names the extra that brings it.
        UnknownNameError: There is no built-in attack of this name.
        MurmurateError: There are too few days or samples, or an attack lacks a name or the method `score`, or it does
            not return one score for each trial.
        PrivacyError: No household of the zone needs protection.

    Example:
        >>> import murmurate as mm
        >>> text = mm.EXAMPLE_ZONE_FILE.replace("any 24 h: epsilon 1, delta 1e-6", "interval: 0.5")
        >>> plan = mm.make_plan(mm.parse_zone(text.replace(', "any moment: 1"', "")))
        >>> for result in mm.audit(plan, attacks=["interval", "prices"], days=2, samples=50_000):
        ...     print(result.name, result.verdict or "without noise")
        interval within
        interval without noise
        prices within
    """
    if not isinstance(attacks, list | tuple):
        raise MurmurateError("attacks", f"of type {type(attacks).__name__}", "must be a list of names and attacks")
    for attack in attacks:
        if isinstance(attack, str):
            if attack not in BUILT_IN_ATTACKS:
                allowed = f"must be an object, or one of {', '.join(BUILT_IN_ATTACKS)}"
                raise UnknownNameError("attack", repr(attack), allowed)
            continue
        require_members("attack", attack, "Attack", "name", "score")
        if str(attack.name).split(" ")[0] in {"", *BUILT_IN_ATTACKS}:
            raise MurmurateError("name", repr(attack.name), "must begin with another word than a built-in attack")
    for field, number, least in (("days", days, 2), ("samples", samples, 1000)):
        if number < least:
            raise MurmurateError(field, number, f"must be at least {least:,}")
    require_extra("plan", "scipy")
    from murmurate.lab.audit.run_attacks import run_audit  # noqa: PLC0415 - needs SciPy, which an extra brings

    return run_audit(
        plan, days, seed, progress, attacks=attacks, noise_source=noise_source, samples=samples, mechanism=mechanism
    )
