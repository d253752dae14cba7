"""For each alert rule the series of a fault, which make it fire, and those of a healthy service, which do not.

A series is in the notation of promtool: `a+bxn` is a, then n more values that grow by b; `_xn` is n missing values.
There is one value a minute, and the rules are looked at after END_MINUTES.
"""

from __future__ import annotations

from typing import NamedTuple

END_MINUTES = 90


class AlertCase(NamedTuple):
    """Series by name, with their labels: of a fault, and of a healthy service."""

    fault: dict[str, str]
    healthy: dict[str, str]


def gauge(series: str, fault: float, healthy: float) -> AlertCase:
    """A case of one gauge that has the same value all the time."""
    return AlertCase({series: f"{fault}x120"}, {series: f"{healthy}x120"})


def counter(series: str, *, fault: str = "0x80 1x40") -> AlertCase:
    """A case of one counter that grows once in the last minutes."""
    return AlertCase({series: fault}, {series: "7x120"})


def histogram(name: str, *, fault: bool, healthy: bool) -> AlertCase:
    """A case of a histogram: of 20 observations an hour all are within one bound and above the one before."""

    def buckets(slow: bool) -> dict[str, str]:
        bounds = {"1": 0, "60": 0 if slow else 1, "300": 1, "+Inf": 1}
        return {f'{name}_bucket{{le="{le}"}}': f"0+{rate}x120" for le, rate in bounds.items()}

    return AlertCase(buckets(fault), buckets(healthy))


def clock_cases(process: str, store: str) -> list[AlertCase]:
    """Cases of the clock of a process: ahead of a database's, and behind it."""
    series = f'murmurate_clock_difference_seconds{{process="{process}",store="{store}"}}'
    return [gauge(series, 600, 0.2), gauge(series, -600, -0.2)]


def releases(zone: str = "harbour", **kinds: int) -> AlertCase:
    """A case of a zone's prices of the last day by kind; a healthy zone has only measured ones."""
    name = f'murmurate_zone_releases_24h{{zone="{zone}",kind="%s"}}'
    return AlertCase({name % kind: f"{count}x120" for kind, count in kinds.items()}, {name % "measured": "96x120"})


def first_event(series: str) -> AlertCase:
    """A case of a counter with a label: it appears with its first event."""
    return AlertCase({series: "_x80 1x40"}, {series: "1x120"})


SCRAPED = {  # what each round of cases has: one metric of the private and one of the public process
    "murmurate_worker_heartbeat_age_seconds": "1x120",
    "murmurate_log_reader_age_seconds": "1x120",
}
ABSENT_CASES = {  # by the process that MurmurateNotScraped names: series of which one is missing
    "private": {"murmurate_worker_heartbeat_age_seconds": "1x40 _x80"},
    "public": {"murmurate_log_reader_age_seconds": "_x120"},
}
ALERT_CASES: dict[str, list[AlertCase]] = {
    "MurmurateDown": [gauge('up{job="murmurate-private",instance="a"}', 0, 1)],
    "MurmurateWorkerSilent": [
        AlertCase(
            {"murmurate_worker_heartbeat_age_seconds": "1x85 130x40"},
            {"murmurate_worker_heartbeat_age_seconds": "1x85 70 1x40"},
        ),
        gauge("murmurate_worker_heartbeat_age_seconds", -1, 2),
    ],
    "MurmuratePartRestarting": [
        AlertCase(
            {'murmurate_part_restarts_total{part="worker"}': "0x80 1+1x40"},
            {'murmurate_part_restarts_total{part="worker"}': "0x80 1x40"},
        )
    ],
    "MurmurateNoPriceNow": [gauge('murmurate_zone_decided_interval_end_seconds{zone="harbour"}', 4500, 6300)],
    "MurmurateReleasesLate": [histogram("murmurate_release_lateness_seconds", fault=True, healthy=False)],
    "MurmurateZoneBehind": [gauge('murmurate_zone_intervals_behind{zone="harbour"}', 2, 1)],
    "MurmurateShardsUnfinished": [gauge("murmurate_shards_unfinished", 1, 0)],
    "MurmurateZonesBlocked": [gauge("murmurate_zones_blocked", 1, 0), gauge("murmurate_shards_blocked", 1, 0)],
    "MurmurateLogBroken": [
        gauge("murmurate_zones_broken", 3, 0),
        gauge("murmurate_shards_broken", 1, 0),
        gauge("murmurate_public_shards_broken", 1, 0),
    ],
    "MurmurateWorkerClockWrong": clock_cases("worker", "state"),
    "MurmurateLogClockWrong": clock_cases("worker", "log"),
    "MurmuratePrivateClockWrong": clock_cases("private", "state"),
    "MurmuratePublicClockWrong": clock_cases("public", "log"),
    "MurmurateFallbackShareHigh": [
        releases(measured=90, fallback=6),
        AlertCase(releases(measured=1, fallback=95).fault, releases(measured=90, fallback=4).fault),
        AlertCase(releases(measured=0, fallback=11).fault, releases(measured=0, fallback=9).fault),  # just opened
    ],
    "MurmurateWithheldShareHigh": [
        AlertCase(releases(zone="quay", measured=90, withheld=2).fault, releases(measured=95, withheld=1).fault)
    ],
    "MurmurateShareReportedLow": [gauge('murmurate_zone_share_reported{zone="harbour"}', 0.8, 0.99)],
    "MurmurateReadingsStopped": [gauge('murmurate_zone_newest_reading_age_seconds{zone="harbour"}', 4000, 30)],
    "MurmurateNotAggregated": [
        counter('murmurate_intervals_not_aggregated_total{cause="disk"}'),
        first_event('murmurate_intervals_not_aggregated_total{cause="disk"}'),
    ],
    "MurmurateAggregationSlow": [histogram("murmurate_aggregation_seconds", fault=True, healthy=False)],
    "MurmurateMeterTableNotInForce": [gauge('murmurate_meter_table_not_in_force{cause="unreadable"}', 1, 0)],
    "MurmurateMeterTableOld": [gauge("murmurate_meter_table_age_seconds", 7_200, 60)],
    "MurmurateZonesWithoutMeters": [gauge("murmurate_zones_without_meters", 1, 0)],
    "MurmurateRegisterPointsRefused": [
        counter('murmurate_register_points_refused_total{cause="future"}'),
        first_event('murmurate_register_points_refused_total{cause="future"}'),
    ],
    "MurmurateRegisterPointsQueued": [
        AlertCase(
            {'murmurate_register_points_refused_total{cause="queued"}': "0x60 1+5x60"},
            {'murmurate_register_points_refused_total{cause="queued"}': "0x85 1+5x3 16x40"},
        )
    ],
    "MurmurateMqttDisconnected": [gauge("murmurate_mqtt_connected", 0, 1)],
    "MurmurateMqttQueueLong": [gauge("murmurate_mqtt_queue_bytes", 60_000_000, 1_000_000)],
    "MurmurateMqttSetAside": [counter("murmurate_mqtt_set_aside_total")],
    "MurmurateLandingNotWritable": [gauge("murmurate_landing_writable", 0, 1)],
    "MurmurateStateNotWritable": [gauge("murmurate_state_writable", 0, 1)],
    "MurmurateRetentionFailed": [
        counter('murmurate_retention_failed_total{cause="files"}'),
        first_event('murmurate_retention_failed_total{cause="files"}'),
    ],
    "MurmurateReadingsTooOld": [gauge("murmurate_oldest_readings_age_seconds", 610_000, 604_000)],
    "MurmurateDamagedFiles": [gauge("murmurate_damaged_files", 1, 0)],
    "MurmurateDiskNearlyFull": [gauge('murmurate_disk_free_ratio{folder="landing"}', 0.05, 0.2)],
    "MurmurateDatabaseLarge": [gauge('murmurate_database_bytes{database="log"}', 60_000_000_000, 3_000_000_000)],
    "MurmurateBackupOld": [
        gauge('murmurate_backup_age_seconds{database="state"}', 100_000, 3_600),
        gauge('murmurate_backup_age_seconds{database="log"}', -1, 80_000),
    ],
    "MurmurateSessionPoolFull": [gauge("murmurate_session_pool_in_use", 16, 3)],
    "MurmurateVerificationFailed": [gauge("murmurate_verification_failed", 1, 0)],
    "MurmurateNotVerified": [gauge("murmurate_verification_timestamp_seconds", -200_000, 0)],
    "MurmurateLogReaderOld": [
        gauge("murmurate_log_reader_age_seconds", 90, 1),
        gauge("murmurate_log_reader_age_seconds", -1, 0),
    ],
    "MurmurateShardsStale": [gauge("murmurate_public_shards_stale", 1, 0)],
    "MurmurateConnectionsNearLimit": [gauge("murmurate_public_connections", 9000, 500)],
    "MurmurateStreamsNearLimit": [gauge("murmurate_public_streams", 4500, 500)],
    "MurmurateNoticesDropped": [counter("murmurate_notices_dropped_total")],
}
