"""Mutants that no test kills, and why that is right: each row is an argument that somebody may attack."""

from __future__ import annotations

SURVIVORS: dict[str, str] = {
    "chain.name: returns None: return f'record {record.seq} of {record.zone}'": (
        "Changes the text of an error and nothing that anybody decides by."
    ),
    "desk._after: dropped: raise ChainError('change', None, 'must say what to change to')": (
        "Never reached: next_task makes a task of kind plan or key only where the wish holds that change; without the "
        "guard the same mistake ends in an AttributeError."
    ),
    "desk._opened: dropped: raise ChainError('chain', 'not open', 'must be opened with a plan and a key first')": (
        "Never reached: next_task makes no task for a chain without a head where the wish holds no opening; without "
        "the guard the same mistake ends in an AttributeError."
    ),
    "publisher._fits: returns None: return False": "Its one caller negates the answer: None and False are the same.",
    "publisher.turn: turned round: {zone for zone, at in stands.items() if at.behind} | offers.keys()": (
        "The union of two sets is the same in either order."
    ),
    "publisher.turn: turned round: refused | _misfits(stands, drafts)": (
        "What was refused was not written, so the two have no zone in common."
    ),
    "publisher.turn: turned round: {zone: at.offer for zone, at in stands.items() if at.offer is not None} | "
    "drafts": "A zone with an offer has no task, so no draft: the two have no zone in common.",
}
