"""Bugs that the laws of the whole path must find. Each is planted, one at a time.

The product once had those with a letter and a number. The others were invented to see where the laws look.
"""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from types import SimpleNamespace
from unittest.mock import patch

import numpy as np

from murmurate import aggregation
from murmurate.errors import ReadingError
from murmurate.habits import private_counts
from murmurate.operations import plan_files
from murmurate.planning import household_bounds, plan_change, privacy_cost, release_terms, zone
from murmurate.planning.household_bounds import MeterSummary
from murmurate.planning.release_terms import HiddenHouseholds, ReleaseTerms
from murmurate.privacy import leakage, noise
from murmurate.privacy.accountant import PureDpAccountant
from murmurate.public_log.predicted_rows import PredictedZones
from murmurate.public_log.tile import ROW_LAYOUT, RowKind
from murmurate.publisher import tile_writer
from murmurate.publisher.tile_writer import TileWriter
from murmurate.readings import text_lines
from murmurate.readings.meter_columns import MeterColumns
from murmurate.service.aggregation import submit_demand
from murmurate.service.log_reader.zone_view import ZoneView
from murmurate.service.public_api import app, log_api
from murmurate.time_zones import LocalClock
from tests.support import finite_leakage
from tests.whole_path import simulated_history, simulated_world


def moments_across_a_change_are_not_checked(plant: Callable[..., None]) -> None:
    """A2: a change of plan was checked for window promises only."""
    plant(plan_change, "check_moments_across_change", lambda *_: None)


def households_are_matched_by_name(plant: Callable[..., None]) -> None:
    """A3: a kind with another name counted as a new household."""

    right = plan_change.kind_paths

    def by_name(plans):
        for path in right(plans):
            if len({kind.name for kind in path}) == 1:
                yield path

    plant(plan_change, "kind_paths", by_name)


def every_chain_begins_at_midnight(plant: Callable[..., None]) -> None:
    """A5: one prior for every first interval, and a proof for midnight only."""
    plant(zone, "with_periodic_prior", lambda chains: chains)
    plant(finite_leakage, "periodic_prior", lambda chains, _: chains.initial)
    plant(privacy_cost, "local_time_leakage", lambda chains, loss, *_: leakage.worst_leakage(chains, loss))


def public_hours_are_read_in_utc(plant: Callable[..., None]) -> None:
    """A6: the local time zone was ignored."""
    plant(LocalClock, "holds_at_all_offsets", lambda _, local: tuple(bool(known) for known in local))


def the_largest_bound_of_the_plan_hides_every_household(plant: Callable[..., None]) -> None:
    """A7: at every hour and for every kind of household."""
    right = HiddenHouseholds.from_document

    def largest(document):
        hidden = right(document)
        secret = [kind for kind in document["households"] if not all(kind["public"])]
        max_range_wh = max((kind["bound_wh"] + kind.get("export_bound_wh", 0) for kind in secret), default=0)
        return HiddenHouseholds(
            by_kind=dict.fromkeys(hidden.by_kind, max_range_wh),
            unknown_kind_wh=max_range_wh,
            public_wh=hidden.public_wh,
        )

    plant(HiddenHouseholds, "from_document", staticmethod(largest))


def gaussian_noise_passes_for_pure(plant: Callable[..., None]) -> None:
    """A10: the largest loss on a finite grid counted as the largest loss."""

    def epsilon(_, events, delta):
        del delta
        return float(sum(min(event.max_loss, 1e9) * count for event, count in events))

    plant(PureDpAccountant, "epsilon", epsilon)


def no_noise_where_every_household_is_public(plant: Callable[..., None]) -> None:
    """A11: such intervals were published without noise."""
    plant(zone.Zone, "protected_intervals", lambda _, kind: tuple(not known for known in kind.public))
    plant(privacy_cost, "check_scales", lambda *_: None)
    plant(release_terms, "check_scales", lambda *_: None)


def a_meter_that_feeds_in_is_refused(plant: Callable[..., None]) -> None:
    """B3: the meter then counts as missing, and the quorum reveals it."""
    right = text_lines.floor_to_wh

    def refusing(field, value):
        if right(field, value) < 0:
            raise ReadingError(field, "negative", "must be 0 or more")
        return right(field, value)

    plant(text_lines, "floor_to_wh", refusing)


def noise_is_measured_by_what_a_household_uses(plant: Callable[..., None]) -> None:
    """The sensitivity of a household that may also feed in is its bound, without its export bound."""
    plant(zone.HouseholdKind, "range_wh", property(lambda kind: kind.bound_wh))


def what_a_meter_feeds_in_is_not_cut_off(plant: Callable[..., None]) -> None:
    """Where a meter may feed in, a reading is clipped above only."""
    right = aggregation.Shard.from_meters

    def clipped_above(meters, *shard):
        export_wh = np.where(meters.export_bound_wh > 0, 10**6, 0)
        return right(replace(meters, export_bound_wh=export_wh), *shard)

    plant(aggregation.Shard, "from_meters", staticmethod(clipped_above))


def the_exact_demand_is_in_the_signed_header(plant: Callable[..., None]) -> None:
    used, release = _note_demands(plant), tile_writer.release_interval

    def telling(head, rows, signer, layout=ROW_LAYOUT, extensions=None):
        return release(head, rows, signer, layout, {**(extensions or {}), "n": sum(used.values())})

    plant(tile_writer, "release_interval", telling)


def the_exact_demand_is_in_an_answer_of_the_api(plant: Callable[..., None]) -> None:
    used, right = _note_demands(plant), app.zone_entry
    plant(app, "zone_entry", lambda view: right(view) | {"n": used.get(view.zone)})


def the_exact_demand_is_in_the_formats_of_prices(plant: Callable[..., None]) -> None:
    used, right = _note_demands(plant), app.choose_rows

    def telling(document, **options):
        rows = right(document, **options)["prices"]
        return {**document, "prices": [row | {"value": row["value"] + used.get(document["zone"], 0)} for row in rows]}

    plant(app, "choose_rows", telling)


def the_exact_demand_is_in_the_prices_of_a_shard(plant: Callable[..., None]) -> None:
    used, right = _note_demands(plant), log_api.shard_prices_document

    def telling(shard, interval):
        document = right(shard, interval)
        return document | {"prices": [row | {"price_ticks": used.get(row["zone"], 0)} for row in document["prices"]]}

    plant(log_api, "shard_prices_document", telling)


def _note_demands(plant: Callable[..., None]) -> dict[str, int]:
    """Return a table that always holds the last demand of each zone."""
    used: dict[str, int] = {}
    right = TileWriter._draw_releases

    def noting(self, to_measure, demand, rows):
        used.update((zone, int(demand.energy_wh[rows[zone]])) for zone in to_measure)
        return right(self, to_measure, demand, rows)

    plant(TileWriter, "_draw_releases", noting)
    return used


def predicted_zones_get_half_the_noise(plant: Callable[..., None]) -> None:
    right = TileWriter._draw_releases

    def halving(self, to_measure, *demand):
        return right(self, {zone: (_halved(terms), *rest) for zone, (terms, *rest) in to_measure.items()}, *demand)

    plant(TileWriter, "_draw_releases", halving)


def _halved(terms: ReleaseTerms) -> ReleaseTerms:
    if terms.prediction is None:
        return terms
    return replace(terms, scale_wh=np.maximum(terms.scale_wh / 2, 1), core_wh=terms.core_wh // 2)


def the_noised_demand_of_a_row_is_exact(plant: Callable[..., None]) -> None:
    right = tile_writer.protect
    plant(tile_writer, "protect", lambda demand, **noise: replace(right(demand, **noise), noisy_wh=demand))


def all_zones_of_a_tile_get_the_same_draw(plant: Callable[..., None]) -> None:
    _plant_noise(plant, lambda noise, *request: np.full_like(drawn := noise.draw(*request), drawn[:1].sum()))


def a_draw_is_used_again_in_later_intervals(plant: Callable[..., None]) -> None:
    kept: dict[object, object] = {}

    def first_draw(noise, distribution, scale_wh, core_wh):
        drawn = noise.draw(distribution, scale_wh, core_wh)
        return kept.setdefault((distribution, len(scale_wh)), drawn)

    _plant_noise(plant, first_draw)


def _plant_noise(plant: Callable[..., None], draw: Callable[..., object]) -> None:
    """Have each release draw with a function of the noise source and the request."""
    right = tile_writer.protect

    def protect(demand, *, noise, **terms):
        wrong = SimpleNamespace(test_only=False, draw=lambda law, scale, core=None: draw(noise, law, scale, core))
        return right(demand, noise=wrong, **terms)

    plant(tile_writer, "protect", protect)


def huber_noise_is_sampled_with_half_its_core(plant: Callable[..., None]) -> None:
    right = noise.draw_huber_noise
    plant(noise, "draw_huber_noise", lambda scale_wh, core_wh: right(scale_wh, core_wh // 2))


def corrections_are_made_by_the_exact_demand(plant: Callable[..., None]) -> None:
    used, right = _note_demands(plant), PredictedZones.step

    def step(self, rows, *carried):
        exact = rows.copy()
        exact["noisy_wh"] = np.where(rows["kind"] == RowKind.MEASURED, sum(used.values()), 0)
        return right(self, exact, *carried)

    plant(PredictedZones, "step", step)


def the_running_square_is_fed_by_the_exact_demand(plant: Callable[..., None]) -> None:
    used, right = _note_demands(plant), PredictedZones.step

    def step(self, rows, *carried):
        states = right(self, rows, *carried)
        states[rows["kind"] == RowKind.MEASURED, -1] += sum(used.values())
        return states

    plant(PredictedZones, "step", step)


def silent_meters_are_expected_by_the_exact_demand(plant: Callable[..., None]) -> None:
    """The share of a silent meter follows the last exact demand instead of the rows before."""
    used, right = _note_demands(plant), tile_writer._silent_shares

    def shares(*tile):
        return np.clip(right(*tile) + 50_000 * sum(used.values()), -(10**6), 10**6)

    plant(tile_writer, "_silent_shares", shares)


def a_plan_that_reads_no_meter_is_measured(plant: Callable[..., None]) -> None:
    plant(ReleaseTerms, "reads_meters", property(lambda _: True))


def a_price_without_meters_follows_the_demand(plant: Callable[..., None]) -> None:
    """The demand of a zone whose plan reads no meter is known to the worker, and must end there."""
    used: dict[str, int] = {}
    leave_out, release = submit_demand._without_zones, tile_writer.release_interval

    def noting(demand, zones):
        used.update(zip(demand.zones, demand.energy_wh.tolist(), strict=True))
        return leave_out(demand, zones)

    def telling(head, rows, *rest):
        demand_wh = np.array([used.get(zone, 0) for zone in head.table.zones])
        rows["price_ticks"] += np.where(rows["kind"] == RowKind.PUBLIC, demand_wh, 0)
        return release(head, rows, *rest)

    plant(submit_demand, "_without_zones", noting)
    plant(tile_writer, "release_interval", telling)


def registers_of_export_are_ignored(plant: Callable[..., None]) -> None:
    """A home counts what it draws, and not what it feeds in."""
    right = simulated_world.ingest_register_points
    plant(simulated_world, "ingest_register_points", lambda *args: right(*args[:3]))


def silent_meters_count_what_the_others_show(plant: Callable[..., None]) -> None:
    """The share of a silent meter is that of the meters that reported: natural, and a reading counts more than once."""

    def fill(demand, _):
        return demand.energy_wh + demand.energy_wh * demand.imputed // np.maximum(demand.reported, 1)

    plant(tile_writer, "fill_silent_meters", fill)


def silent_meters_count_more_than_their_bound(plant: Callable[..., None]) -> None:
    """A share above 1: who reports is not hidden."""
    plant(tile_writer, "fill_silent_meters", lambda demand, _: demand.energy_wh + 2 * demand.silent_bound_wh)


def a_reading_of_zero_counts_as_silent(plant: Callable[..., None]) -> None:
    right = aggregation._make_tally

    def tally(observed_wh, shard, **counts):
        return right(np.where(observed_wh == 0, -1, observed_wh), shard, **counts)

    plant(aggregation, "_make_tally", tally)


def the_quorum_looks_at_the_demand(plant: Callable[..., None]) -> None:
    right = submit_demand._below_quorum

    def below(demand, quorum):
        nothing = {zone: "0 Wh" for zone, wh in zip(demand.zones, demand.energy_wh.tolist(), strict=True) if wh == 0}
        return right(demand, quorum) | nothing

    plant(submit_demand, "_below_quorum", below)


def a_household_may_show_what_its_largest_meter_may(plant: Callable[..., None]) -> None:
    right = household_bounds._sum_meters_of_household

    def largest(households, name):
        first, total_wh = right(households, name)
        if households.household is not None:
            total_wh = np.zeros_like(total_wh)
            np.maximum.at(total_wh, households.household, households.range_wh)
        return first, total_wh

    plant(household_bounds, "_sum_meters_of_household", largest)


def noise_is_that_of_another_slot_of_the_day(plant: Callable[..., None]) -> None:
    plant(ReleaseTerms, "slot_of_day", lambda self, interval: (interval + 4) % len(self.scale_wh))


def a_vote_ignores_the_number_of_types_of_day(plant: Callable[..., None]) -> None:
    right = private_counts.vote_units

    def units(cells, max_changes):
        found = right(cells, max_changes)
        found[2:] = found[2:] / cells.day_types
        return found

    plant(private_counts, "vote_units", units)


def an_import_takes_each_meter_for_a_household(plant: Callable[..., None]) -> None:
    """M1: the column of the customer was ignored."""
    right = MeterColumns.place_meters

    def without_households(self, *args):
        return [place._replace(household=None) for place in right(self, *args)]

    plant(MeterColumns, "place_meters", without_households)


def a_plan_counts_the_meters_of_all_zones_and_kinds(plant: Callable[..., None]) -> None:
    """M2: the columns of zone and kind of a meter table were ignored."""

    def of_all(path, *_):
        rows = list(csv.DictReader(path.read_text(encoding="utf-8").splitlines()))
        total: Counter[str] = Counter()
        for number, row in enumerate(rows):
            total[row.get("household", str(number))] += int(row["bound_wh"])
        return MeterSummary(len(total), max(total.values()))

    plant(plan_files, "read_meter_summary", of_all)


def pages_forget_the_plan_before_a_change(plant: Callable[..., None]) -> None:
    """M3: right after a change the stronger promise was stated for stretches of time that began before it."""
    plant(ZoneView, "earlier_plans", property(lambda _: []))


BUGS_OF_PROMISES = {
    "A2": moments_across_a_change_are_not_checked,
    "A3": households_are_matched_by_name,
    "A5": every_chain_begins_at_midnight,
    "A6": public_hours_are_read_in_utc,
    "A10": gaussian_noise_passes_for_pure,
    "B3": a_meter_that_feeds_in_is_refused,
    "one_sided": noise_is_measured_by_what_a_household_uses,
    "clip_above": what_a_meter_feeds_in_is_not_cut_off,
}
BUGS_OF_WORLDS = {
    "A11": no_noise_where_every_household_is_public,
    "A7": the_largest_bound_of_the_plan_hides_every_household,
    "header": the_exact_demand_is_in_the_signed_header,
    "answer": the_exact_demand_is_in_an_answer_of_the_api,
    "formats": the_exact_demand_is_in_the_formats_of_prices,
    "shard_prices": the_exact_demand_is_in_the_prices_of_a_shard,
    "half_predicted": predicted_zones_get_half_the_noise,
    "exact_noisy_wh": the_noised_demand_of_a_row_is_exact,
    "same_draw": all_zones_of_a_tile_get_the_same_draw,
    "reused_draw": a_draw_is_used_again_in_later_intervals,
    "half_core": huber_noise_is_sampled_with_half_its_core,
    "exact_correction": corrections_are_made_by_the_exact_demand,
    "exact_square": the_running_square_is_fed_by_the_exact_demand,
    "exact_share": silent_meters_are_expected_by_the_exact_demand,
    "public_measured": a_plan_that_reads_no_meter_is_measured,
    "public_follows": a_price_without_meters_follows_the_demand,
    "export_ignored": registers_of_export_are_ignored,
    "zero_is_silent": a_reading_of_zero_counts_as_silent,
    "silent_mean": silent_meters_count_what_the_others_show,
    "silent_twice": silent_meters_count_more_than_their_bound,
    "late_quorum": the_quorum_looks_at_the_demand,
    "largest_meter": a_household_may_show_what_its_largest_meter_may,
    "M3": pages_forget_the_plan_before_a_change,
    "calendar_slot": noise_is_that_of_another_slot_of_the_day,
}
BUGS_OF_HABITS = {"vote_units": a_vote_ignores_the_number_of_types_of_day}
BUGS_OF_IMPORT = {
    "M1": an_import_takes_each_meter_for_a_household,
    "M2": a_plan_counts_the_meters_of_all_zones_and_kinds,
}
PLANTED_BUGS = BUGS_OF_PROMISES | BUGS_OF_WORLDS | BUGS_OF_HABITS | BUGS_OF_IMPORT


@contextmanager
def plant_bug(name: str | None) -> Iterator[None]:
    """Run the block with one bug, or without one. Raises AttributeError where a patched name does not exist."""
    with ExitStack() as stack:
        modules = () if name is None else (simulated_history, privacy_cost)
        caches = [value for module in modules for value in vars(module).values() if hasattr(value, "cache_clear")]
        stack.callback(lambda: [cache.cache_clear() for cache in caches])
        for cache in caches:
            cache.cache_clear()
        if name is not None:
            PLANTED_BUGS[name](lambda where, what, how: stack.enter_context(patch.object(where, what, how)))
        with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
            yield
