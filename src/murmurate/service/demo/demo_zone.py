"""The zone of the demo: flats with ordinary habits, and shift workers whose habits say nothing about any hour."""

from __future__ import annotations

from murmurate.planning.zone import Zone
from murmurate.planning.zone_file import EXAMPLE_FORECAST, EXAMPLE_ZONE_FILE, parse_zone

DEMO_ZONE = "harbour"  # as in the example
TARGET_KIND = "shift worker"  # the attacker's targets
_TARGET_SHARE = 4  # one home in so many

# Arriving and leaving are equally likely at any time: by the model alone, home or away is a coin toss. A stay takes an
# hour on average. Away, only a fridge runs.
_SHIFT_WORKERS = """
[occupancy.shift]
periods = {{ night = "00:00", morning = "06:00", afternoon = "12:00", evening = "18:00" }}
arrive = {{ night = 0.999, morning = 0.999, afternoon = 0.999, evening = 0.999 }}
leave = {{ night = 0.999, morning = 0.999, afternoon = 0.999, evening = 0.999 }}

[[households]]
name = "{name}"
count = {count}
bound_wh = 1000
away = {{ uniform_to = 60 }}
home = {{ uniform_to = 600 }}
occupancy = "shift"
"""


def make_demo_zone(homes: int) -> Zone:
    """Return the zone of a demo with so many homes, at least two.

    >>> [(kind.name, kind.count) for kind in make_demo_zone(1000).kinds]
    [('flat', 750), ('shift worker', 250)]
    """
    targets = max(1, homes // _TARGET_SHARE)
    flats = EXAMPLE_ZONE_FILE.split('\n[[households]]\nname = "fish market"')[0]
    flats = flats.replace("count = 800", f"count = {homes - targets}")
    flats = flats.replace(
        "\n[tariff]", '\nnoise = "huber"\n\n[tariff]'
    )  # the best for these promises, so no other is tried
    return parse_zone(flats + _SHIFT_WORKERS.format(name=TARGET_KIND, count=targets) + EXAMPLE_FORECAST)
