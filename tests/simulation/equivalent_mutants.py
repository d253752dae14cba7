"""Mutants that no test can kill, because they behave like the original. Each entry argues for one mutant."""

from __future__ import annotations

EQUIVALENT_MUTANTS: dict[str, str] = {
    "public_log.tile_chain._enter_zones: and/or: last_rows is not None and rows_before is not None": (
        "last_rows is None exactly where rows_before is: one condition, written twice for the type checker."
    ),
    "publisher.tile_writer._write_tile: dropped: raise ChainError('change', None, 'must say what to change to')": (
        "Never reached: find_next_tile returns a tile of kind key only where the desired state contains that change. "
        "Without the guard the same mistake ends in an AttributeError."
    ),
    "publisher.tile_writer._require_opening: dropped: "
    "raise ChainError('shard', 'not open', 'must be opened with a key first')": (
        "Never reached: find_next_tile returns nothing for a shard without a head where the desired state contains no "
        "opening. Without the guard the same mistake ends in an AttributeError."
    ),
    "publisher.protocol.publish_round: swapped: "
    "{shard for shard, at in reconciled.items() if at.behind} | offers.keys()": (
        "The union of two sets is the same in either order."
    ),
    "publisher.protocol.publish_round: swapped: "
    "refused | {shard: text for shard, text in invalid.items() if text is not None}": (
        "A refused shard has no draft, so the two have no shard in common."
    ),
    "publisher.protocol.publish_round: swapped: "
    "{shard: at.offer for shard, at in reconciled.items() if at.offer is not None} | drafts": (
        "A shard with an offer has no next tile and so no draft: the two have no shard in common."
    ),
}
