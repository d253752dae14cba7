"""`murmurate rotate`: sign every zone with a new key."""

from __future__ import annotations

from pathlib import Path

from murmurate.commands.console import publish, report_outcome, stdout, zones_word
from murmurate.errors import MurmurateError
from murmurate.publisher.desired_state import UNTIL_NO_INTERVAL, Change, DesiredState
from murmurate.service.keyring import add_signing_key, load_keyring
from murmurate.service.storage.databases import Databases, mask_database_errors, read_heads
from murmurate.service.worker.publisher_context import PublisherContext


def rotate_keys(databases: Databases, keys: Path) -> int:
    """`murmurate rotate`: a new signing key for every zone. A rotation that was not finished is finished first."""
    databases.check_reachable()
    with mask_database_errors():
        context = PublisherContext.from_databases(databases, keys)
        current = {
            zone: entry.key_in_force for zone, entry in read_heads(context.log, list(context.state.openings())).items()
        }
        if not current:
            raise MurmurateError("zones", "none", "open one first: murmurate open plan.json")
        if set(current.values()) == {context.keyring.newest_signer.public_key}:
            add_signing_key(keys)
            context.keyring = load_keyring(keys)
        new = context.keyring.newest_signer.public_key
        desired = {
            zone: DesiredState(until=UNTIL_NO_INTERVAL, key_change=Change(key, new))
            for zone, key in current.items()
            if key != new
        }
        outcome, failed = publish(context, desired)
    stdout.print(f"{len(outcome.up_to_date):,} of {len(desired):,} {zones_word(desired)} now signed by {new}")
    stdout.print("Keep the new file with the old ones, on every machine that publishes. Old keys are still needed.")
    return report_outcome(outcome, failed)
