"""Audit a plan: simulate its zone, release its prices and run every attack on them.

Bounds come from the claims of the plan (`Plan.costs`), releases from its scales. The audit reports noise that does not
keep the claims. The target is each kind of household with secret occupancy, under each of its models.

Some attackers compute the odds that the target is home from the prices of a day. They know its habits: its occupancy
model. Intervals in which its occupancy is public are neither scored nor counted as evidence, as in the plan.

The others know all but the target and attack one release, two successive ones or all of a window. The noise covers any
two readings within the range, so several pairs are compared. Several releases are simulated as days [day, interval], in
the order of publication: the attacks detect noise that is repeated or correlated with earlier noise.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial, reduce
from itertools import combinations

import numpy as np

from murmurate.adversaries import adversary
from murmurate.adversaries.event_search import count_residues, count_values, log_ratio_bound
from murmurate.household.occupancy import log_joint_chain
from murmurate.lab.audit.attack import (
    BUILT_IN_ATTACKS,
    DEFAULT_SAMPLES,
    Attack,
    AttackResult,
    AuditProgress,
    Mechanism,
    NoiseSource,
)
from murmurate.lab.audit.attack_verdict import (
    FAMILYWISE_ERROR_RATE,
    Candidate,
    estimate_auc,
    interval_bound,
    judge_auc,
    judge_epsilon,
    judge_posterior_shift,
    judge_score_auc,
    max_auc,
    samples_to_detect_skipped_noise,
    stream_bounds,
)
from murmurate.lab.audit.simulated_zone import (
    AuditScenario,
    coarsen_distribution,
    group_intervals_by_noise,
    log_likelihood_ratio,
    make_scenarios,
    merge_scenarios_by_kind,
    noise_log_pmf,
    noisy_demand,
    normal_and_laplace,
    release_demand,
    rest_demand_moments,
    worst_case_history,
    zone_occupancy_model,
)
from murmurate.lab.audit.window_attacks import own_attack, window_attack, window_costs
from murmurate.planning.plan import Plan
from murmurate.privacy.divergence import SecretPair
from murmurate.privacy.noise import SeededNoise
from murmurate.release import protect
from murmurate.units import BoolArray, FloatArray, IntArray

MODULI = (*range(2, 17), 100, 1000)
MAX_JOINT_HOUSEHOLDS = 8
_MAX_CELLS = 256  # cells of a coarsened distribution, for attackers who do not know the rest of the zone
_EXTREME_DAYS_FACTOR = 20  # factor on the number of days of a target without other households
_OTHER_PAIR_SAMPLE_DIVISOR = 4  # pairs other than the worst get this fraction of the samples
_RESIDUE_SAMPLE_DIVISOR = 8  # each hypothesis of the residues gets this fraction of the samples
_CURVE_POINTS = 4096  # demands at which the curve is evaluated
_PAIR_SAMPLE_DIVISOR = 4  # each pattern of releases gets this fraction of the samples
_ATTACKS_PER_KIND = 8  # attacks on each kind, not counting windows, and `joint`
_SIMULATION_SHARE = 0.1  # share of the progress


def strong_attack(scene: AuditScenario, failure: float) -> Iterator[AttackResult]:
    """The attacker knows all but the target and computes its posterior from the whole day, by forward-backward."""
    attack = AttackResult(name="strong", knows="all but the target; told the habits", target=scene.target_name)
    yield _posterior_attack(scene, attack, scene.kind.secret_pair, failure)
    yield _posterior_attack(scene.without_noise(), attack, scene.kind.secret_pair, failure).without_bounds()


def extreme_attack(scene: AuditScenario, failure: float) -> Iterator[AttackResult]:
    """The same attack on the worst readings: the lowest when away, the bound when home."""
    days = _EXTREME_DAYS_FACTOR * len(scene.history.occupied)
    does = "feeds in or uses all it may" if scene.kind.export_bound_wh else "uses nothing or all it may"
    attack = AttackResult(name="extreme", knows=f"all but the target, which {does}", target=scene.target_name)
    yield _posterior_attack(scene._replace(history=worst_case_history(scene, days)), attack, scene.worst_pair, failure)


def public_attack(scene: AuditScenario, failure: float) -> Iterator[AttackResult]:
    """The attacker knows the model and the prices, and the rest of the zone by two moments."""
    attack = AttackResult(name="public", knows="model and prices; told the habits", target=scene.target_name)
    kind, (mean, variance) = scene.kind, rest_demand_moments(scene)
    if not (variance > 0).all():
        yield replace(attack, note="no other household hides the target: public is strong")
        return
    attack = replace(attack, auc_bound=stream_bounds(scene)[1])
    step = max(1, kind.range_wh // _MAX_CELLS)
    away, home = (
        np.kron(coarsen_distribution(pmf, step), np.eye(1, step)[0])
        for pmf in (kind.secret_pair.away, kind.secret_pair.home)
    )
    for variant in (scene, scene.without_noise()):
        noisy_wh = noisy_demand(variant, scene.history.rest_wh + scene.history.energy_wh)
        emission = np.zeros((*noisy_wh.shape, 2))
        for t, same in group_intervals_by_noise(variant.plan):
            normal, laplace = normal_and_laplace(variant.plan, t)
            emission[:, same, 1] = adversary.public_log_ratio(
                noisy_wh[:, same], mean[same] - kind.export_bound_wh, variance[same] + normal, away, home, laplace
            )
        emission[:, ~scene.hidden] = 0.0
        odds = adversary.smoothed_log_odds(scene.initial, scene.transition, emission)
        estimate = estimate_auc(odds - scene.prior, scene.history.occupied, scene.hidden)
        judged = judge_auc(attack, estimate, failure)
        yield judged if variant is scene else judged.without_bounds()


def joint_attack(scene: AuditScenario, failure: float) -> Iterator[AttackResult]:
    """The attacker knows the first model of each of a few households: the paper's posterior over 2^N states."""
    zone = scene.plan.zone
    attack = AttackResult(name="joint", knows="model of each household; prices so far", target=scene.target_name)
    if zone.household_count > MAX_JOINT_HOUSEHOLDS:
        yield replace(attack, note=f"needs at most {MAX_JOINT_HOUSEHOLDS} households")
        return
    noisy_wh = noisy_demand(scene, scene.history.rest_wh + scene.history.energy_wh)
    odds = joint_log_odds(scene.plan, noisy_wh, scene.hidden)
    first = sum(kind.count for kind in zone.kinds[: zone.kinds.index(scene.kind)])
    yield judge_posterior_shift(scene, attack, odds[..., first], failure)


def joint_log_odds(plan: Plan, noisy_wh: IntArray, observed: BoolArray) -> FloatArray:
    """Return log odds [day, interval, household] given the releases of the day so far (paper, Eq. 2 and 3).

    Distributions are coarsened to at most 256 cells of the largest range, so that 2^8 states stay fast.
    """
    zone, pmfs, states = plan.zone, [], np.arange(2**plan.zone.household_count)
    step = max(1, max(kind.range_wh for kind in zone.kinds) // _MAX_CELLS)
    lowest_wh = -sum(kind.export_bound_wh * kind.count for kind in zone.kinds)
    for kind in zone.kinds:
        both = [coarsen_distribution(pmf, step) for pmf in (kind.secret_pair.away, kind.secret_pair.home)]
        pmfs += [both] * kind.count
    demand = np.stack([reduce(np.convolve, [pmf[s >> i & 1] for i, pmf in enumerate(pmfs)]) for s in states])
    chain = log_joint_chain(zone_occupancy_model(zone, [kind.count for kind in zone.kinds], 1))
    steps, belief = np.exp(chain.transition), np.exp(chain.initial)[None, :]
    odds = np.zeros((*noisy_wh.shape, len(pmfs)))
    for t in range(zone.intervals_per_day):
        belief = belief @ steps[t] if t else belief
        if observed[t]:
            noise = noise_log_pmf(plan, t)(noisy_wh[:, t, None] - lowest_wh - step * np.arange(demand.shape[1]))
            belief = belief * (np.exp(noise - noise.max(axis=1, keepdims=True)) @ demand.T)
        belief = belief / belief.sum(axis=1, keepdims=True)
        with np.errstate(divide="ignore"):
            odds[:, t] = adversary.joint_log_odds(np.log(belief))
    return odds


def _posterior_attack(
    scene: AuditScenario, attack: AttackResult, secret_pair: SecretPair, failure: float
) -> AttackResult:
    """Run forward-backward on the target's chain, after subtracting all other households."""
    target_wh = noisy_demand(scene, scene.history.rest_wh + scene.history.energy_wh) - scene.history.rest_wh
    emission = np.zeros((*target_wh.shape, 2))
    for t, same in group_intervals_by_noise(scene.plan):
        observed, pmf = same & scene.hidden, noise_log_pmf(scene.plan, t)
        emission[:, observed] = adversary.emission_log_likelihood(
            target_wh[:, observed], -secret_pair.export_bound_wh, secret_pair.away, secret_pair.home, pmf
        )
    return judge_posterior_shift(
        scene, attack, adversary.smoothed_log_odds(scene.initial, scene.transition, emission), failure
    )


def single_release_attacks(scene: AuditScenario, failure: float) -> Iterator[AttackResult]:
    """Four attacks on the noisy demand of one interval: likelihood ratio, values, the true value, residues."""
    t, (low, top) = interval_bound(scene).t, scene.extremes_wh
    readings = sorted({low, low + 1, top - 1, top})
    drawn = {f"{reading:,} Wh": noisy_demand(scene, np.full(scene.samples, reading), t) for reading in readings}
    first, *_, last = drawn  # the two that are easiest to distinguish
    worst = drawn[first], drawn[last]
    attack = _single_release_result(scene, "interval", "all but the target; one noised demand")
    read = log_likelihood_ratio(scene.plan, scene.worst_pair, t)  # the best statistic for the declared noise
    away, home = (read(output) for output in worst)
    judged = judge_epsilon(attack, [(["likelihood ratio"], count_values(away, home))], failure / 2)
    yield judge_score_auc(judged, away, home, failure / 2)
    exact = tuple(np.full(scene.samples, reading) for reading in (low, top))
    attack = replace(attack, knows="all but the target; one demand", bound=None, delta=0.0)
    judged = judge_epsilon(attack, [([""], count_values(*exact))], failure / 2)
    away, home = (readings.astype(np.float64) for readings in exact)
    yield replace(judge_score_auc(judged, away, home, failure / 2), noise=False)
    yield value_attack(scene, drawn, failure)
    yield skipped_noise_attack(scene, worst, failure)
    yield residue_attack(scene, failure)


def value_attack(scene: AuditScenario, outputs_by_name: dict[str, IntArray], failure: float) -> AttackResult:
    """Attack by the noisy demands of any two hypotheses: detects a bounded support and steps in the noise."""
    attack = _single_release_result(scene, "values", "all but the target; one noised demand")
    first, *_, last = outputs_by_name
    candidates = []
    for left, right in combinations(outputs_by_name, 2):
        divisor = 1 if (left, right) == (first, last) else _OTHER_PAIR_SAMPLE_DIVISOR
        samples = max(4, scene.samples // divisor)
        counts = count_values(outputs_by_name[left][:samples], outputs_by_name[right][:samples])
        candidates.append(([f"{left} against {right}"], counts))
    return judge_epsilon(attack, candidates, failure)


def skipped_noise_attack(scene: AuditScenario, outputs: tuple[IntArray, IntArray], failure: float) -> AttackResult:
    """Attack by the event that the noisy demand equals a likely reading: detects noise that is sometimes skipped.

    The event is fixed beforehand, once for each hypothesis, so that all samples measure it.
    """
    attack = _single_release_result(scene, "skipped", "all but the target; one noised demand")
    bounds = []
    for reading, order in zip(scene.extremes_wh, ([0, 1], [1, 0]), strict=True):
        hits = np.array([np.count_nonzero(outputs[world] == reading) for world in order])
        bounds.append((log_ratio_bound(hits, np.full(2, scene.samples), failure / 2, attack.delta), reading))
    measured, reading = max(bounds)
    ok = measured <= (attack.bound or 0.0)
    statistic = f"published as {reading} Wh"
    return replace(attack, quantity="epsilon", measured=max(0.0, measured), ok=ok, best_statistic=statistic)


def residue_attack(scene: AuditScenario, failure: float) -> AttackResult:
    """Attack by the noisy demand modulo small numbers: detects noise on a coarser grid than 1 Wh."""
    attack = _single_release_result(scene, "residues", "all but the target; one noised demand, modulo 2..16, 100, 1000")
    t, samples = interval_bound(scene).t, max(16, scene.samples // _RESIDUE_SAMPLE_DIVISOR)
    low, width = scene.extremes_wh[0], scene.kind.range_wh
    shifts = sorted({*range(1, 17), 50, width - 1, width} & set(range(1, width + 1)))
    away_wh = noisy_demand(scene, np.full(samples, low), t)
    drawn = {shift: noisy_demand(scene, np.full(samples, low + shift), t) for shift in shifts}
    candidates: list[Candidate] = []
    for modulus in MODULI:
        # each residue of a small modulus once, every residue of a large one
        apart = [shift for shift in shifts if shift % modulus and (shift < modulus or modulus > 16)]
        if apart:
            labels = [f"{low} against {low + shift} Wh, modulo {modulus}" for shift in apart]
            candidates.append((labels, count_residues(away_wh, [drawn[shift] for shift in apart], modulus)))
    return judge_epsilon(attack, candidates, failure)


def price_attack(scene: AuditScenario, failure: float) -> Iterator[AttackResult]:
    """Attack by the published price of one interval, at the demands where it leaks most.

    The other households use their mean, or what makes the price change most or meet a limit.
    """
    attack = _single_release_result(scene, "prices", "all but the target; one price")
    t, samples = interval_bound(scene).t, max(4, scene.samples // 2)
    curve, (low, top) = scene.plan.zone.curve, scene.extremes_wh
    usual = round(float(rest_demand_moments(scene)[0][t]))
    lowest = -low - sum(kind.export_bound_wh * kind.count for kind in scene.plan.zone.kinds)  # of all others
    edges = [segment.from_wh - top for segment in curve.segments if segment.from_wh - top >= lowest]
    grid = np.linspace(lowest, 2 * max(usual, 0) + 10 * top, _CURVE_POINTS).astype(np.int64)
    wh = np.unique(np.concatenate([grid, np.array(edges, np.int64)]))
    before, after = (curve.price_ticks(wh + reading) for reading in (low, top))
    demands = {usual, int(wh[np.abs(after - before).argmax()])}
    for limit in (curve.floor, curve.cap):
        if limit is not None:
            at = int(limit / curve.tick)
            demands |= set(wh[(before == at) != (after == at)][:1].tolist())
    candidates = []
    for rest_wh in sorted(demands):
        demand = (np.full(samples, rest_wh + reading) for reading in (low, top))
        away, home = (release_demand(scene, demand_wh, t).price_ticks for demand_wh in demand)
        candidates.append(([f"the others use {rest_wh:,} Wh"], count_values(away, home)))
    yield judge_epsilon(attack, candidates, failure)


def differencing_attack(scene: AuditScenario, failure: float) -> Iterator[AttackResult]:
    """Attack by two zones that differ only by the target: at most twice the loss of one price."""
    t, epsilon, delta = interval_bound(scene)
    history, scores = scene.history, []
    score = adversary.differencing_score(
        noisy_demand(scene, history.rest_wh + history.energy_wh), noisy_demand(scene, history.rest_wh)
    )
    for reading in scene.extremes_wh:
        with_target = noisy_demand(scene, np.full(scene.samples, reading), t)
        without = noisy_demand(scene, np.zeros(scene.samples, np.int64), t)
        scores.append(adversary.differencing_score(with_target, without))
    attack = AttackResult(
        name="differencing",
        knows="two zones, with and without the target",
        target=scene.kind.name,
        auc_bound=max_auc(2 * epsilon, delta),
        bound=2 * epsilon,
        delta=delta,
    )
    judged = judge_epsilon(attack, [(["with and without"], count_values(*scores))], failure / 2)
    yield judge_auc(judged, estimate_auc(score, history.occupied, scene.hidden), failure / 2)


def _single_release_result(scene: AuditScenario, name: str, knows: str) -> AttackResult:
    _, epsilon, delta = interval_bound(scene)
    return AttackResult(name=name, knows=knows, target=scene.kind.name, bound=epsilon, delta=delta)


def successive_releases_attack(scene: AuditScenario, failure: float) -> Iterator[AttackResult]:
    """Attack by differences and sums of two releases 1 interval, 2 intervals or a day apart.

    The hypotheses differ in the later one. Equal noise makes the difference exact, opposite noise the sum.
    """
    day = scene.plan.zone.intervals_per_day
    attack = _single_release_result(scene, "successive", "all but the target; two noised demands")
    candidates: list[Candidate] = []
    for lag in sorted({1, 2, day}):
        for offset in sorted({0, lag % day}):
            away, home = (_release_pairs(scene, lag, offset, differ=differ) for differ in (False, True))
            for words, sign in (("difference", -1), ("sum", 1)):
                scores = (later + sign * earlier for earlier, later in (away, home))
                candidates.append(([f"{words} of releases {lag} apart"], count_values(*scores)))
    yield judge_epsilon(attack, candidates, failure)


def _release_pairs(scene: AuditScenario, lag: int, offset: int, *, differ: bool) -> tuple[IntArray, IntArray]:
    """Return disjoint pairs of releases (earlier, later) `lag` apart. The later readings are of home if they differ.

    Only pairs whose later interval is hidden are used, in an order independent of the time of day.
    """
    day = scene.plan.zone.intervals_per_day
    blocks = max(8, scene.samples // _PAIR_SAMPLE_DIVISOR // (2 * lag))
    days = -(-(offset + blocks * 2 * lag) // day)
    late = (np.arange(days * day) - offset) // lag % 2 == 1
    demand_wh = np.where(late & differ, *reversed(scene.extremes_wh))
    noisy_wh = noisy_demand(scene, demand_wh.reshape(days, day)).ravel()
    whole = slice(offset, offset + (days * day - offset) // (2 * lag) * 2 * lag)
    earlier, later = np.moveaxis(noisy_wh[whole].reshape(-1, 2, lag), 1, 0).reshape(2, -1)
    usable = np.resize(scene.hidden, days * day)[whole].reshape(-1, 2, lag)[:, 1].ravel()
    shuffled = np.random.default_rng(lag).permutation(np.flatnonzero(usable))
    return earlier[shuffled], later[shuffled]


_Attacker = Callable[[AuditScenario, float], Iterator[AttackResult]]
_ATTACKS_ON_MODELS: dict[str, _Attacker] = {"strong": strong_attack, "extreme": extreme_attack, "public": public_attack}
_ATTACKS_ON_KINDS: dict[str, _Attacker] = {  # by the names of what they find
    "interval values skipped residues": single_release_attacks,
    "prices": price_attack,
    "differencing": differencing_attack,
    "successive": successive_releases_attack,
    "window": window_attack,
    "joint": joint_attack,
}


def run_audit(
    plan: Plan,
    days: int,
    seed: int,
    progress: AuditProgress,
    *,
    attacks: Sequence[str | Attack] = BUILT_IN_ATTACKS,
    noise_source: NoiseSource = SeededNoise,
    samples: int = DEFAULT_SAMPLES,
    mechanism: Mechanism = protect,
) -> tuple[AttackResult, ...]:
    """Run attacks on `days` days of the plan's zone. `progress` gets shares of the work that sum to 1.

    `noise_source` makes the noise sampler of each release from a seed. `mechanism` makes the release, like `protect`.
    Pass others to audit them. Results are grouped by the name of the attack, the first target first.
    """
    names = {attack for attack in attacks if isinstance(attack, str)}
    own = [attack for attack in attacks if not isinstance(attack, str)]
    scenes = make_scenarios(
        plan, days, seed, lambda share: progress(_SIMULATION_SHARE * share), noise_source, samples, mechanism
    )
    kinds, failure = merge_scenarios_by_kind(scenes), failure_per_attack(scenes, len(own))
    tasks: list[tuple[_Attacker, AuditScenario, set[str]]] = []
    for attackers, scenes_of in ((_ATTACKS_ON_MODELS, scenes), (_ATTACKS_ON_KINDS, kinds)):
        wanted = [(attacker, names & set(found.split())) for found, attacker in attackers.items()]
        tasks += [(attacker, scene, shown) for attacker, shown in wanted if shown for scene in scenes_of]
    tasks += [(partial(own_attack, attack), scene, {attack.name.split()[0]}) for attack in own for scene in kinds]
    results: list[AttackResult] = []
    for attacker, scene, shown in tasks:
        results += [result for result in attacker(scene, failure) if result.name.split()[0] in shown]
        progress((1 - _SIMULATION_SHARE) / len(tasks))
    order = list(dict.fromkeys(attack.name for attack in results))
    return tuple(sorted(results, key=lambda attack: order.index(attack.name)))


def failure_per_attack(scenarios: list[AuditScenario], own: int = 0) -> float:
    """Return the error probability of each attack, so that a whole run keeps `FAMILYWISE_ERROR_RATE`.

    `own` is the number of the user's attacks. Each is run on one interval and on each promised window.
    """
    windows, kinds = len(window_costs(scenarios[0])), len(merge_scenarios_by_kind(scenarios))
    attacks = len(_ATTACKS_ON_MODELS) * len(scenarios) + (_ATTACKS_PER_KIND + windows + own * (1 + windows)) * kinds
    return FAMILYWISE_ERROR_RATE / attacks


def audit_samples_needed(plan: Plan, chance: float) -> int | None:
    """Return the samples that detect noise skipped with this probability, or None if it breaks no promise."""
    scenes = make_scenarios(plan, 2, 1, lambda _: None, SeededNoise, 16)
    failure = failure_per_attack(scenes)
    needed = [samples_to_detect_skipped_noise(scene, chance, failure / 2) for scene in merge_scenarios_by_kind(scenes)]
    return min((number for number in needed if number is not None), default=None)
