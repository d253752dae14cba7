"""`murmurate keys rotate`: sign every zone with a new key."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

from murmurate.errors import MurmurateError
from murmurate.operations.console import print_json, stdout, zones_word
from murmurate.operations.options import AsJson, Keys, Log, State, optional_imports

with optional_imports():
    from murmurate.operations.publishing import outcome_document, publish, report_outcome
    from murmurate.publisher.desired_state import UNTIL_NO_INTERVAL, Change, DesiredState
    from murmurate.service.keyring import add_signing_key, load_keyring
    from murmurate.service.storage.databases import Databases, mask_database_errors
    from murmurate.service.worker.publisher_context import PublisherContext


def rotate_keys(state: State = "", log: Log = "", keys: Keys = Path("keys"), *, as_json: AsJson = False) -> int:
    """Make a new signing key for every zone. A rotation that was not finished is finished first."""
    databases = Databases.from_dsns(state=state, log=log)
    databases.check_reachable()
    with mask_database_errors(), closing(PublisherContext.from_databases(databases, keys)) as context:
        heads = context.log.read_heads(context.state.shards())
        current = {shard: offer.tile.key_in_force for shard, offer in heads.items() if offer.table.rows}
        if not current:
            raise MurmurateError("zones", "none", "open one first: murmurate zone open plan.json")
        if set(current.values()) == {context.keyring.newest_signer.public_key}:
            add_signing_key(keys)
            context.keyring = load_keyring(keys)
        new = context.keyring.newest_signer.public_key
        desired = {
            shard: DesiredState(until=UNTIL_NO_INTERVAL, key_change=Change(key, new))
            for shard, key in current.items()
            if key != new
        }
        outcome, failed = publish(context, desired)
    zones = sum(len(heads[shard].table) for shard in outcome.up_to_date)
    total = sum(len(heads[shard].table) for shard in desired)
    if as_json:
        print_json({"public_key": new, "zones": total, "signed": zones} | outcome_document(outcome))
    else:
        stdout.print(f"{zones:,} of {total:,} {zones_word(range(total))} now signed by {new}")
        stdout.print("Keep the new file with the old ones, on every machine that publishes. Old keys are still needed.")
    return report_outcome(outcome, failed)
