"""A zone small enough to be audited in a test, and its plans."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from murmurate.lab.audit.attack import AttackResult
from murmurate.lab.audit.run_attacks import run_audit
from murmurate.planning.plan import Plan, make_plan
from murmurate.planning.zone_file import parse_zone

ZONE = """\
name = "quay [7]"
currency = "EUR"
interval_minutes = 60
promise = {promise}

[tariff]
alpha = "0.01"
beta = "0.08"
tick = "0.00001"

[occupancy.resident]
periods = {{ morning = "07:00", noon = "08:00", evening = "16:00", night = "23:00" }}
arrive = {{ morning = 0.6, noon = 0.3, evening = 0.9, night = 0.3 }}
leave = {{ morning = 0.4, noon = 0.9, evening = 0.3, night = 0.8 }}

[occupancy.retired]
periods = {{ day = "07:00", night = "23:00" }}
arrive = {{ day = 0.9, night = 0.3 }}
leave = {{ day = 0.6, night = 0.8 }}

[[households]]
name = "hut"
count = 1
bound_wh = {hut_bound}
export_bound_wh = {export}
away = {{ uniform_from = -{export}, uniform_to = {hut_away} }}
home = {{ uniform_from = {home_from}, uniform_to = {hut_bound} }}
occupancy = {habits}

[[households]]
name = "neighbour"
count = {neighbours}
bound_wh = {bound}
export_bound_wh = {export}
away = {{ uniform_from = -{export}, uniform_to = {away} }}
home = {{ uniform_from = {home_from}, uniform_to = {home} }}
occupancy = "resident"
"""


def plan(
    promise: str = '["interval: 0.5"]',
    neighbours: int = 2,
    away: int = 20,
    home: int = 60,
    noise: str = "",
    hut_away: int = 20,
    habits: str = '"resident"',
    hut_bound: int = 100,
    export: int = 0,
    bound: int = 60,
    home_from: int = 0,
) -> Plan:
    text = ZONE.format(
        promise=promise,
        neighbours=neighbours,
        away=away,
        home=home,
        hut_away=hut_away,
        habits=habits,
        hut_bound=hut_bound,
        export=export,
        bound=bound,
        home_from=home_from,
    )
    return make_plan(parse_zone(text.replace("currency", f"{noise}\ncurrency", 1)))


def weaker(made: Plan, divided_by: int) -> Plan:
    """The same claims with less noise."""
    noise = made.noise
    return replace(
        made, noise=replace(noise, scale_wh=noise.scale_wh / divided_by, core_wh=noise.core_wh // divided_by)
    )


def attacks(made: Plan, days: int = 60, seed: int = 1, samples: int = 120_000, **more: Any) -> dict[str, AttackResult]:
    """For each attack, the result on the target with the most leakage."""
    found: dict[str, AttackResult] = {}
    for attack in run_audit(made, days, seed, lambda _: None, samples=samples, **more):
        if attack.noise:
            known = found.setdefault(attack.name, attack)
            found[attack.name] = max(known, attack, key=lambda each: each.severity)
    return found


def convicting(made: Plan, **more: Any) -> set[str]:
    """The names of the attacks that convict."""
    return {name for name, attack in attacks(made, **more).items() if not attack.ok}
