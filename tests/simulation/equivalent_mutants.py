"""Mutants that no test can kill, because they behave like the original. Each entry argues for one mutant."""

from __future__ import annotations

EQUIVALENT_MUTANTS: dict[str, str] = {
    "public_log.chain.record_label: returns None: return f'record {record.seq} of {record.zone}'": (
        "Changes the text of an error only. No code decides by that text."
    ),
    "publisher.record_writer._change_target: dropped: raise ChainError('change', None, 'must say what to change to')": (
        "Never reached: find_next_record returns a record of kind plan or key only where the desired state contains "
        "that change. Without the guard the same mistake ends in an AttributeError."
    ),
    "publisher.record_writer._require_opening: dropped: "
    "raise ChainError('chain', 'not open', 'must be opened with a plan and a key first')": (
        "Never reached: find_next_record returns nothing for a chain without a head where the desired state contains "
        "no opening. Without the guard the same mistake ends in an AttributeError."
    ),
    "publisher.protocol._can_follow: returns None: return False": (
        "The only caller negates the result: None and False are the same to it."
    ),
    "publisher.protocol.publish_round: swapped: "
    "{zone for zone, at in reconciled.items() if at.behind} | offers.keys()": (
        "The union of two sets is the same in either order."
    ),
    "publisher.protocol.publish_round: swapped: refused | _invalid_drafts(reconciled, drafts)": (
        "A refused zone has no draft, so the two have no zone in common."
    ),
    "publisher.protocol.publish_round: swapped: "
    "{zone: at.offer for zone, at in reconciled.items() if at.offer is not None} | drafts": (
        "A zone with an offer has no next record and so no draft: the two have no zone in common."
    ),
}
