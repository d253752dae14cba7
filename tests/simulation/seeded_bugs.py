"""Bugs that a developer could write: each makes the protocol look right and be wrong."""

from __future__ import annotations

from collections.abc import Iterator

from tests.simulation.ast_mutations import (
    CHAIN,
    DESIRED_STATE,
    PROTOCOL,
    RECORD_WRITER,
    RELEASE_TERMS,
    STORES,
    Mutant,
    source_of,
)

_SAVE = (
    "    yield SaveState({zone: reconciled[zone].new_entries for zone in outcome.with_new_entries}, dropped | drafts)\n"
)
_OFFERS = "    offers = {zone: at.offer for zone, at in reconciled.items() if at.offer is not None} | drafts\n"
_STALE = "    stale = seen_state.pending is not None and not _can_follow(head, seen_state.pending)\n"
_NEW_ENTRIES = "    new_entries = catch_up(seen_state, log_tail, verify)\n"
_NEXT_RECORD = "    next_record = None if behind or offer is not None else find_next_record(head, desired)\n"
_RECONCILE = "            reconciled[zone] = reconcile_zone(state, tails[zone], desired[zone], verify)\n"
_SIGNER = "        key = _require_opening(next_record).key if head is None else head.key_in_force\n"
_DIGEST = "        terms = self.terms_for_plan(digest)\n"
_PLANS = "head.record.plan == desired.plan_change.before != desired.plan_change.after"
_KEYS = "head.key_in_force == desired.key_change.before != desired.key_change.after"
_FORECAST = '"kind": RecordKind.FORECAST,'
_PRICES = "zip(zones, release.price_ticks.tolist(), strict=True)"

SEEDED_BUGS = (
    # Order of the steps
    ("sent before it is saved", PROTOCOL, _SAVE, "    yield AppendToLog(drafts)\n" + _SAVE),
    ("sent and never saved", PROTOCOL, _SAVE, _SAVE.replace("dropped | drafts", "dropped")),
    ("drafts are not checked", PROTOCOL, "refused | _invalid_drafts(reconciled, drafts)", "refused"),
    ("an invalid draft is reported and sent all the same", PROTOCOL, "if zone not in outcome.blocked}", "}"),
    ("the end of the log is not compared", PROTOCOL, "seen_state.head.hash != log_tail.last_hash", "False"),
    ("sent without waiting for the slot", PROTOCOL, "        yield WaitForSlot()\n", ""),
    ("only new drafts are sent", PROTOCOL, _OFFERS, "    offers = drafts\n"),
    ("only old drafts are sent", PROTOCOL, _OFFERS, _OFFERS.replace(" | drafts", "")),
    # Reading the log
    ("the log is not imported", PROTOCOL, _NEW_ENTRIES, "    new_entries = []\n"),
    ("lines of the log are not checked", PROTOCOL, "check_next(head, parse_entry(line), verify)", "parse_entry(line)"),
    ("signatures are not checked", CHAIN, "    check_signature(entry, verify)\n", ""),
    ("drafting while behind", PROTOCOL, _NEXT_RECORD, _NEXT_RECORD.replace("behind or ", "")),
    (
        "a log that lost entries is accepted",
        PROTOCOL,
        "if log_tail.last_seq < _last_seq(seen_state.head):",
        "if False:",
    ),
    # The pending draw
    ("a pending draw is never used again", PROTOCOL, "None if behind or stale else seen_state.pending", "None"),
    ("a pending draw is used though it does not fit", PROTOCOL, _STALE, "    stale = False\n"),
    ("a lost response counts as refused", PROTOCOL, _STALE, "    stale = seen_state.pending is not None\n"),
    (
        "a lost response counts as accepted",
        PROTOCOL,
        _NEW_ENTRIES,
        _NEW_ENTRIES.rstrip() + " or [seen_state.pending]\n",
    ),
    (
        "a draw is kept only at an acceptable price",
        PROTOCOL,
        _STALE,
        "    cheap = seen_state.pending is not None and (seen_state.pending.record.price_ticks or 0) < 2**26\n"
        + _STALE.replace("not _can_follow(", "not (cheap and _can_follow(").replace("pending)\n", "pending))\n"),
    ),
    ("a stale draw stays", PROTOCOL, "{zone: None for zone, at in reconciled.items() if at.stale_pending}", "{}"),
    (
        "a draw is written beside the pending one",
        PROTOCOL,
        _NEXT_RECORD,
        _NEXT_RECORD.replace(" or offer is not None", ""),
    ),
    # Costs
    ("the total starts again at 0", RECORD_WRITER, "(0 if last is None else last.total_epsilon_micro) + ", "0 + "),
    ("the cost is not added", RECORD_WRITER, ' + members.get("epsilon_micro", 0)', ""),
    ("the cost is added twice", RECORD_WRITER, ' + members.get("rho_micro", 0)', ' + 2 * members.get("rho_micro", 0)'),
    ("a forecast is charged", RECORD_WRITER, _FORECAST, _FORECAST + ' "epsilon_micro": 3,'),
    (
        "a forecast is charged in the total only",
        RECORD_WRITER,
        'members.get("epsilon_micro", 0)',
        'members.get("epsilon_micro", 3 * (members["kind"] is RecordKind.FORECAST))',
    ),
    ("a measurement is free", RELEASE_TERMS, '"epsilon_micro": int(self.epsilon_micro[slot])', '"epsilon_micro": 0'),
    ("the cost of another slot", RELEASE_TERMS, "int(self.epsilon_micro[slot])", "int(self.epsilon_micro[slot - 1])"),
    ("the stated core of another slot", RELEASE_TERMS, "int(self.core_wh[slot])", "int(self.core_wh[slot - 1])"),
    ("the core is not stated", RELEASE_TERMS, "int(self.core_wh[slot])", "0"),
    (
        "the noise of another slot",
        RECORD_WRITER,
        "terms.slot_of_day(interval)) for",
        "terms.slot_of_day(interval + 1)) for",
    ),
    ("one scale for all", RECORD_WRITER, "[terms.scale_wh[slot] for", "[first.scale_wh[slot] for"),
    ("one core for all", RECORD_WRITER, "[terms.core_wh[slot] for", "[first.core_wh[slot] for"),
    ("the core of another slot", RECORD_WRITER, "[terms.core_wh[slot] for", "[terms.core_wh[slot - 1] for"),
    (
        "the bounds of a demand are not checked",
        RECORD_WRITER,
        "terms.not_hidden_reason(demand.bounds_at(row)) is None",
        "True",
    ),
    (
        "one curve for all",
        RECORD_WRITER,
        "(id(terms.curve), terms.distribution.value)",
        "(0, terms.distribution.value)",
    ),
    ("one distribution for all", RECORD_WRITER, "(id(terms.curve), terms.distribution.value)", '(id(terms.curve), "")'),
    ("the prices are swapped", RECORD_WRITER, _PRICES, _PRICES.replace("tolist()", "tolist()[::-1]")),
    (
        "the demands are swapped",
        RECORD_WRITER,
        "[demand_rows[zone] for zone in zones]",
        "[demand_rows[zone] for zone in zones[::-1]]",
    ),
    # The chain
    ("the last interval is drawn again", DESIRED_STATE, "None, last + 1, desired)", "None, last, desired)"),
    ("an interval is skipped", DESIRED_STATE, "None, last + 1, desired)", "None, last + 2, desired)"),
    ("an interval is released too early", DESIRED_STATE, "if last >= desired.until:", "if last > desired.until:"),
    ("the number is not increased", RECORD_WRITER, "last.seq + 1", "last.seq"),
    ("the wrong predecessor is named", RECORD_WRITER, "else head.hash", "else head.record.prev"),
    (
        "the old key signs after a rotation",
        RECORD_WRITER,
        _SIGNER,
        _SIGNER.replace("head.key_in_force", "head.record.key"),
    ),
    ("the newest key signs before its time", RECORD_WRITER, _SIGNER, "        key = list(self.signers)[-1]\n"),
    (
        "the old plan prices after a change",
        RECORD_WRITER,
        _DIGEST,
        "        change = next_record.desired.plan_change\n"
        "        digest = change.before if change and next_record.kind is None else digest\n" + _DIGEST,
    ),
    (
        "the new plan prices before the change",
        RECORD_WRITER,
        _DIGEST,
        "        change = next_record.desired.plan_change\n"
        "        digest = change.after if change and head else digest\n" + _DIGEST,
    ),
    ("plans change back and forth", DESIRED_STATE, _PLANS, "head.record.plan != desired.plan_change.after"),
    ("keys change back and forth", DESIRED_STATE, _KEYS, "head.key_in_force != desired.key_change.after"),
    (
        "what is late is priced",
        DESIRED_STATE,
        "RecordKind.WITHHELD if last + 1 < desired.priced_from else None",
        "None",
    ),
    ("a forecast in spite of demand", RECORD_WRITER, "if z in demand_rows and next_record.kind is None", "if False"),
    # Isolation between zones
    (
        "one bad chain stops the batch",
        PROTOCOL,
        _RECONCILE + "        except ChainError as error:\n",
        _RECONCILE + "        except KeyError as error:\n",
    ),
    (
        "one bad plan stops the batch",
        RECORD_WRITER,
        "            except MurmurateError as error:",
        "            except KeyError as error:",
    ),
    (
        "the first bad chain hides the others",
        PROTOCOL,
        "            outcome.blocked[zone] = _blocked_reason(error)\n",
        "            outcome.blocked[zone] = _blocked_reason(error)\n            break\n",
    ),
    ("a failed round keeps its locks", STORES, "        state.rollback()\n        raise\n", "        raise\n"),
    (
        "the error of a failed round is swallowed",
        STORES,
        "        state.rollback()\n        raise\n",
        "        state.rollback()\n",
    ),
    (
        "a saved round is not committed",
        STORES,
        "            state.save(seen, pending)\n",
        "            state.rollback()\n",
    ),
)


def seeded_mutants() -> Iterator[Mutant]:
    """Yield each seeded bug in its module. Raises LookupError unless the source contains the replaced text once."""
    for name, module, old, new in SEEDED_BUGS:
        source = source_of(module)
        if (times := source.count(old)) != 1 or old == new:
            raise LookupError(
                f"{name}: {module} contains {old!r} {times} times; update tests/simulation/seeded_bugs.py"
            )
        yield Mutant(f"seeded: {name}", module, source.replace(old, new))
