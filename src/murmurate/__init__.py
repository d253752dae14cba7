"""Real-time electricity rates that protect occupancy.

`import murmurate as mm` offers the public interface: the names in `__all__`. Each name is loaded from its module on
first use, so the import itself loads neither NumPy nor SciPy. All modules and packages below `murmurate` are private,
with the exception of `murmurate.errors`: they may change in any version. Reference: `docs/reference/api.md`.

Example:
    >>> import murmurate as mm
    >>> mm.parse_zone(mm.EXAMPLE_ZONE_FILE).household_count
    801
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from murmurate import errors
    from murmurate.aggregation import aggregate
    from murmurate.household.occupancy import OccupancyChains
    from murmurate.lab.audit.attack import Attack, AttackResult, Observation
    from murmurate.lab.audit.plan_audit import audit
    from murmurate.planning.plan import Plan, load_plan, make_plan, prove_plan
    from murmurate.planning.utility import plan_utility
    from murmurate.planning.zone import HouseholdKind, Zone
    from murmurate.planning.zone_file import EXAMPLE_ZONE_FILE, parse_zone
    from murmurate.pricing.rate import RateCurve
    from murmurate.privacy.accountant import PldAccountant, PrivacyEvent
    from murmurate.privacy.calibration import laplace_scales
    from murmurate.privacy.divergence import GaussianCurve, HuberCurve, PrivacyCurve
    from murmurate.privacy.noise import NoiseDistribution, NoiseSampler, SeededNoise, SystemNoise
    from murmurate.privacy.policy import Policy, ProtectionRule, PublicSchedule, sensitivity_schedule
    from murmurate.privacy.promise import parse_promise
    from murmurate.release import protect
    from murmurate.types import Demand, Meters, Readings, Release
    from murmurate.verification.verifier import check_log

__version__ = "0.1.0"

__all__ = [
    "EXAMPLE_ZONE_FILE",
    "Attack",
    "AttackResult",
    "Demand",
    "GaussianCurve",
    "HouseholdKind",
    "HuberCurve",
    "Meters",
    "NoiseDistribution",
    "NoiseSampler",
    "Observation",
    "OccupancyChains",
    "Plan",
    "PldAccountant",
    "Policy",
    "PrivacyCurve",
    "PrivacyEvent",
    "ProtectionRule",
    "PublicSchedule",
    "RateCurve",
    "Readings",
    "Release",
    "SeededNoise",
    "SystemNoise",
    "Zone",
    "aggregate",
    "audit",
    "check_log",
    "errors",
    "laplace_scales",
    "load_plan",
    "make_plan",
    "parse_promise",
    "parse_zone",
    "plan_utility",
    "protect",
    "prove_plan",
    "sensitivity_schedule",
]

_NAMES_OF_MODULE = {
    "aggregation": "aggregate",
    "household.occupancy": "OccupancyChains",
    "lab.audit.attack": "Attack AttackResult Observation",
    "lab.audit.plan_audit": "audit",
    "planning.plan": "Plan load_plan make_plan prove_plan",
    "planning.utility": "plan_utility",
    "planning.zone": "HouseholdKind Zone",
    "planning.zone_file": "EXAMPLE_ZONE_FILE parse_zone",
    "pricing.rate": "RateCurve",
    "privacy.accountant": "PldAccountant PrivacyEvent",
    "privacy.calibration": "laplace_scales",
    "privacy.divergence": "GaussianCurve HuberCurve PrivacyCurve",
    "privacy.noise": "NoiseDistribution NoiseSampler SeededNoise SystemNoise",
    "privacy.policy": "Policy ProtectionRule PublicSchedule sensitivity_schedule",
    "privacy.promise": "parse_promise",
    "release": "protect",
    "types": "Demand Meters Readings Release",
    "verification.verifier": "check_log",
}
_MODULE_OF_NAME = {name: f"murmurate.{module}" for module, names in _NAMES_OF_MODULE.items() for name in names.split()}


def __getattr__(name: str) -> Any:
    """Load a public name from its module on first use (PEP 562)."""
    if name == "errors":
        return import_module("murmurate.errors")
    if name not in _MODULE_OF_NAME:
        raise AttributeError(f"module 'murmurate' has no attribute {name!r}")
    value = getattr(import_module(_MODULE_OF_NAME[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*__all__, *(name for name in globals() if name.startswith("__"))})
