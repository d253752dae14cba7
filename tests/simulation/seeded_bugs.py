"""Bugs that a developer could write: each makes the protocol look right and be wrong."""

from __future__ import annotations

from collections.abc import Iterator

from tests.simulation.ast_mutations import (
    CORRECTIONS,
    DESIRED_STATE,
    INVALID_TAIL,
    MAKE_TILE,
    MERKLE,
    OBJECT_LOG,
    PREDICTED_ROWS,
    PROTOCOL,
    STORES,
    TILE,
    TILE_CHAIN,
    TILE_WRITER,
    ZONE_PREDICTION,
    ZONE_TABLE,
    Mutant,
    source_of,
)
from tests.simulation.object_log_bugs import OBJECT_LOG_BUGS

_SAVE = (
    "    yield SaveState({shard: reconciled[shard].new_heads for shard in outcome.with_new_tiles}, dropped | drafts)\n"
)
_OFFERS = "    offers = {shard: at.offer for shard, at in reconciled.items() if at.offer is not None} | drafts\n"
_STALE = "    stale = seen_state.pending is not None and _why_not_next(head, seen_state.pending) is not None\n"
_NEW_HEADS = "    new_heads = catch_up(seen_state, log_tail, verify)\n"
_MAY_WRITE = " if not at.behind and at.offer is None}"
_RECONCILE = "            reconciled[shard] = reconcile_shard(state, tails[shard], verify)\n"
_SIGNER = "_require_opening(tile).key if tile.head is None else tile.head.tile.key_in_force"
_TERMS = "            terms = self.terms_for_plan(row.plan)\n"
_PLANS = "row.plan == change.before != change.after"
_KEYS = "head.tile.key_in_force == change.before != change.after"
_FORECAST = "(kind, NoiseCode.NONE, its.forecast_ticks[slot], *_NO_NOISE, *_LEFT_OPEN)"
_MEASURED = "(RowKind.MEASURED, *noise, its.epsilon_micro[slot], its.rho_micro[slot], *_LEFT_OPEN)"
_STEP = "predicted.step(rows, carried, tile.interval, lead)"
_BOUNDS = " and its.not_hidden_reason(demand.bounds_at(row)) is None"
_FILL = "fill_silent_meters(demand, share_micro)"
_SHARES = "_silent_shares(tile.head, tile.interval, terms, inputs)"
_ADVANCE = "zones, carried.states[at], interval, noisy_wh[at], measured[at], factor[at], self._inputs"
_SURPRISE = "(noisy_wh / factor - expected) / usual"
_SQUARE = "surprise * surprise - surprise_square - states[SQUARE]"
_RELEASE = "NextTile(head, TileKind.RELEASE, last + 1, table, desired)"
_CLAIMED = "{zone for zone, holder in holders.items() if holder == shard}"
_TOTAL = '        rows[f"total_{cost}"] = head.totals[number] + rows[cost]\n'
_LEAVES = "    root = compute_root(hash_leaves(head.table, interval, rows)).hex()\n"
_KEPT = "            leaf_hashes[at], totals[:, at] = head.leaf_hashes[before], head.totals[:, before]\n"
_FIND_TERMS = (
    "        except MurmurateError as error:\n            withheld[row.zone] = str(error)\n            return None\n"
)

SEEDED_BUGS: dict[str, tuple[tuple[str, str, str], ...]] = {  # by module: name, what the source says, the bug
    PROTOCOL: (
        ("sent before it is saved", _SAVE, "    yield AppendToLog(drafts)\n" + _SAVE),
        ("sent and never saved", _SAVE, _SAVE.replace("dropped | drafts", "dropped")),
        (
            "drafts are not checked",
            " for shard, text in invalid.items() if text is not None}",
            " for shard, text in ()}",
        ),
        ("an invalid draft is reported and sent all the same", "if shard not in outcome.blocked}", "}"),
        ("the end of the log is not compared", "log_tail.last_hash != seen_state.head.tile.hash", "False"),
        ("sent without waiting for the slot", "        yield WaitForSlot()\n", ""),
        ("only new drafts are sent", _OFFERS, "    offers = drafts\n"),
        ("only old drafts are sent", _OFFERS, _OFFERS.replace(" | drafts", "")),
        ("the log is not imported", _NEW_HEADS, "    new_heads = []\n"),
        (
            "tiles of the log are not checked",
            "return check_next(head, offer.tile, offer.table, verify)",
            "return check_follows(head, offer.tile, offer.table)",
        ),
        ("drafting while behind", _MAY_WRITE, _MAY_WRITE.replace("not at.behind and ", "")),
        ("a log that lost tiles is accepted", "    if log_tail.last_seq < seen_seq:\n", "    if False:\n"),
        ("a pending tile is never used again", "None if behind or stale else seen_state.pending", "None"),
        ("a pending tile is used though it does not fit", _STALE, "    stale = False\n"),
        ("a lost response counts as refused", _STALE, "    stale = seen_state.pending is not None\n"),
        (
            "a lost response counts as accepted",
            _NEW_HEADS,
            _NEW_HEADS + "    if not new_heads and seen_state.pending is not None:\n"
            "        new_heads = [check_follows(seen_state.head, *seen_state.pending)]\n",
        ),
        (
            "a tile is kept only at acceptable prices",
            _STALE,
            "    pending = seen_state.pending\n"
            "    cheap = pending is not None and (pending.tile.rows['price_ticks'] < 2**26).all()\n"
            + _STALE.replace("_why_not_next(", "(not cheap or _why_not_next(").replace("None\n", "None)\n"),
        ),
        ("a stale tile stays", "{shard: None for shard, at in reconciled.items() if at.stale_pending}", "{}"),
        ("a tile is written beside the pending one", _MAY_WRITE, _MAY_WRITE.replace(" and at.offer is None", "")),
        ("the answer to a claim is ignored", _CLAIMED, "set(desired[shard].zones)"),
        ("a claim of any shard is enough", "if holder == shard}", "if holder}"),
        ("zones are not claimed", "(yield ClaimZones(dict(wanted))) if wanted else {}", "dict(wanted)"),
        ("a zone of another shard is not reported", "        if holders[zone] != shard:\n", "        if False:\n"),
        (
            "one bad shard stops the batch",
            _RECONCILE + "        except ShardBlockedError as error:\n",
            _RECONCILE + "        except KeyError as error:\n",
        ),
        (
            "the first bad shard hides the others",
            "            outcome.blocked[shard] = BlockedReason(error.code, str(error))\n",
            "            outcome.blocked[shard] = BlockedReason(error.code, str(error))\n            break\n",
        ),
    ),
    TILE_CHAIN: (
        (
            "signatures are not checked",
            "    check_signature(tile, verify)\n    return check_follows(head, tile, table)\n",
            "    return check_follows(head, tile, table)\n",
        ),
        ("a zone leaves its shard", "    elif set(after.closed) != ended:\n", "    elif set(after.closed) - ended:\n"),
        (
            "the totals of a closed zone are not compared",
            "    elif set(after.closed) != ended:\n",
            "    elif {zone[:6] for zone in after.closed} != {zone[:6] for zone in ended}:\n",
        ),
        (
            "the end of a closed zone is not compared",
            "    elif set(after.closed) != ended:\n",
            "    elif {zone._replace(last=0) for zone in after.closed} != {zone._replace(last=0) for zone in ended}:\n",
        ),
        (
            "a closed zone may be lost",
            "    ended = {*before.closed, *leaving}\n",
            "    ended = {*(before.closed if after.closed else ()), *leaving}\n",
        ),
        (
            "a closed zone has the totals of another zone",
            "*map(int, head.totals[:, at]))",
            "*map(int, head.totals[:, 0]))",
        ),
        (
            "what a header states about closed zones is not compared",
            "    _require(tile, CLOSED, stated, ",
            "    (lambda *_: None)(tile, CLOSED, stated, ",
        ),
        (
            "a tile follows the end of a shard",
            '    if not head.table.rows:\n        raise ChainError("shard",',
            '    if False:\n        raise ChainError("shard",',
        ),
        (
            "a line follows the end of its zone",
            '    if not head.table.rows:\n        raise ChainError("zone",',
            '    if False:\n        raise ChainError("zone",',
        ),
        ("the plan of a line is not compared", '_require(tile, "plan", proof.plan, before.plan)', "pass"),
        ("an entering zone takes the place of another", _KEPT, _KEPT.replace("[before]", "[0]")),
        ("zones keep the totals of another zone", _KEPT, _KEPT.replace("[:, before]", "[:, -1 - before]")),
        ("the root is not checked", '    _require(tile, "root", tile.header.root, tile.find_root(hashes))\n', ""),
        ("the last row of another zone", "= rows_before[before]", "= rows_before[0]"),
    ),
    DESIRED_STATE: (
        (
            "zones enter without a claim",
            "zones_to_enter(head, desired).items() if zone in claimed}",
            "zones_to_enter(head, desired).items()}",
        ),
        (
            "a zone enters before the shard has come to its first interval",
            " and opening.first <= head.interval + 1",
            "",
        ),
        ("a zone that enters takes the place of the others", "[*rows, *entered]", "[*entered]"),
        (
            "a zone is opened again after it was closed",
            "if zone not in head.table.column and",
            "if zone not in head.table.position and",
        ),
        ("a zone enters to be closed", " if zone not in desired.closing}", "}"),
        ("zones that were closed are forgotten", "[*head.table.closed, *closing]", "[*closing]"),
        ("a zone is closed and stays open", "        if row.zone not in leaving\n", ""),
        ("a zone is not closed", "head.table.position.keys() & set(desired.closing)", "set()"),
        ("a shard goes on without zones", "    if not head.table.rows:  # the shard has ended\n", "    if False:\n"),
        ("the demand of the interval before", _RELEASE, _RELEASE.replace("last + 1", "last")),
        ("an interval is released too early", "if last >= desired.until", "if last > desired.until"),
        (
            "the old plan prices after a change",
            "row._replace(plan=changes[row.zone].after, ",
            "row._replace(plan=changes[row.zone].before, ",
        ),
        ("a plan keeps the currency of the last one", "currency=changes[row.zone].currency, ", ""),
        ("plans change back and forth", _PLANS, "row.plan != change.after"),
        ("keys change back and forth", _KEYS, "head.tile.key_in_force != change.after"),
        ("what is late is priced", "return self.interval < self.desired.priced_from", "return False"),
        (
            "a zone of another shard keeps this one from opening",
            "        if not entering:\n",
            "        if len(entering) < len(desired.zones):\n",
        ),
    ),
    MAKE_TILE: (
        (
            "the header does not state what a closed zone has spent",
            "extensions={CLOSED: closing} if closing else {}",
            "extensions={}",
        ),
        (
            "a leaf is left out of the root",
            _LEAVES,
            _LEAVES.replace("interval, rows))", "interval, rows)[:-1] or [b''])"),
        ),
        ("the root is over other leaves", _LEAVES, _LEAVES.replace("interval, rows", "interval - 1, rows")),
        ("rows do not name the leaf before", '    rows["prev"] = head.leaf_hashes\n', ""),
        (
            "rows name the leaf of another zone",
            'rows["prev"] = head.leaf_hashes\n',
            'rows["prev"] = head.leaf_hashes[::-1]\n',
        ),
        ("the total starts again at 0", _TOTAL, _TOTAL.replace("head.totals[number] + ", "")),
        ("the totals of another zone", _TOTAL, _TOTAL.replace("[number]", "[number][::-1]")),
        ("the totals of the other cost", _TOTAL, _TOTAL.replace("[number]", "[1 - number]")),
        ("the cost is not added", _TOTAL, _TOTAL.replace(" + rows[cost]", "")),
        ("the cost is added twice", _TOTAL, _TOTAL.replace("+ rows[cost]", "+ 2 * rows[cost]")),
        ("the last interval is drawn again", "interval = head.interval + 1", "interval = head.interval"),
        ("an interval is skipped", "interval = head.interval + 1", "interval = head.interval + 2"),
        ("the number is not increased", "last.seq + 1", "last.seq"),
        ("the wrong predecessor is named", "prev=head.tile.hash", "prev=last.prev"),
    ),
    MERKLE: (
        (
            "an odd node is hashed with itself",
            "above + level[-1:] if",
            "above + [sha256(NODE_PREFIX + level[-1] * 2).digest()] if",
        ),
    ),
    TILE: (
        (
            "a leaf does not name its interval",
            "sha256(prefix + at_interval + data[at : at + size])",
            "sha256(prefix + data[at : at + size])",
        ),
    ),
    ZONE_TABLE: (("a leaf does not name its plan", " + name + bytes.fromhex(plan)", " + name"),),
    INVALID_TAIL: (
        ("the last valid tile is set aside too", "head.tile.header.seq + 1", "head.tile.header.seq"),
        ("a signed tile is set aside", "            if tile_hash not in held:\n", "            if False:\n"),
        (
            "a valid tile is set aside: the head does not go on",
            "            head = check_next(head, tile,",
            "            check_next(head, tile,",
        ),
        ("an unsigned tail stays", "if _is_signed(line, key, verify)", "if True"),
        ("the key that a thief names counts", "verify(key or named, signed,", "verify(named, signed,"),
        (
            "unsigned tiles are taken for valid",
            "check_next(head, tile, load_table(tile.header.table), verify)",
            "check_next(head, tile, load_table(tile.header.table), lambda *_: True)",
        ),
        ("an unreadable tile stays", "        except ChainError as error:\n", "        except KeyError as error:\n"),
    ),
    TILE_WRITER: (
        ("a plan that reads no meter is measured", "its is None or not its.reads_meters else", "its is None else"),
        (
            "a price without meters is a fallback",
            "its.reads_meters else RowKind.PUBLIC",
            "its else RowKind.PUBLIC",
        ),
        ("a forecast is charged", _FORECAST, _FORECAST.replace("*_NO_NOISE", "0, 0, 3, 0")),
        ("a measurement is free", _MEASURED, _MEASURED.replace("its.epsilon_micro[slot]", "0")),
        ("the cost of another slot", _MEASURED, _MEASURED.replace("epsilon_micro[slot]", "epsilon_micro[slot - 1]")),
        ("the stated core of another slot", "its.core_wh[slot]\n", "its.core_wh[slot - 1]\n"),
        ("the stated scale of another slot", "its.scale_wh[slot],", "its.scale_wh[slot - 1],"),
        (
            "the noise of another slot",
            "usable[zone] = its, its.slot_of_day(tile.interval)",
            "usable[zone] = its, its.slot_of_day(tile.interval + 1)",
        ),
        ("one scale for all", "[terms.scale_wh[slot] for", "[plans[0][0].scale_wh[slot] for"),
        ("one core for all", "[terms.core_wh[slot] for", "[plans[0][0].core_wh[slot] for"),
        ("one curve for all", "curve=curve,", "curve=next(iter(groups))[0],"),
        ("one distribution for all", "distribution=distribution,", "distribution=next(iter(groups))[1],"),
        ("the bounds of a demand are not checked", _BOUNDS, ""),
        ("the prices are swapped", "zip(drawn.price_ticks.tolist(),", "zip(drawn.price_ticks.tolist()[::-1],"),
        (
            "the demands are swapped",
            "[demand_rows[zone] for zone in zones]",
            "[demand_rows[zone] for zone in zones[::-1]]",
        ),
        ("test-only noise is published", "if usable and self.noise.test_only:", "if False:"),
        ("the states of another zone", _STEP, f"{_STEP}[::-1]"),
        ("the states of another interval", _STEP, _STEP.replace("tile.interval", "tile.interval - 1")),
        ("the states begin anew", "carried = carry_over(head.last_rows,", "carried = carry_over(None,"),
        ("the oldest price is due for ever", "carried.due[:, 1:]", "carried.due[:, :-1]"),
        (
            "the price of an interval that is over",
            "predicted.price(states, tile.interval, lead)",
            "predicted.price(states, tile.interval, 0)",
        ),
        (
            "the price of the last release",
            '    rows["price_ticks"][predicted.numbers] = predicted.price(states, tile.interval, lead)\n',
            "",
        ),
        ("the noised demand of another zone", "else 0 for zone in zones]", "else 0 for zone in zones[::-1]]"),
        (
            "the exact demand is published",
            "drawn.noisy_wh.tolist(), strict=True)",
            "demand.energy_wh[[demand_rows[zone] for zone in zones]].tolist(), strict=True)",
        ),
        ("the inputs of the tile before", "to_extensions(inputs))", "head.tile.header.extensions)"),
        ("inputs are not stated", ", layout, to_extensions(inputs))", ", layout)"),
        ("the inputs of another interval", "(series, header, tile.interval)", "(series, header, tile.interval - 1)"),
        ("the inputs of the first zone alone", "for its in terms if its and", "for its in terms[:1] if its and"),
        (
            "a tile written again states the inputs of its first draft",
            "to_extensions(inputs))",
            "to_extensions(vars(_write_release).setdefault(head.tile.hash, inputs)))",
        ),
        ("a demand below zero counts as zero", _FILL, f"{_FILL} + np.maximum(-demand.energy_wh, 0)"),
        ("a demand below zero is not measured", _BOUNDS, f"{_BOUNDS} and demand.energy_wh[row] >= 0"),
        ("silent meters count nothing", "        if has_silent:\n", "        if False:\n"),
        ("the share of silent meters of another zone", _SHARES, f"{_SHARES}[::-1]"),
        ("the share of silent meters of another interval", _SHARES, _SHARES.replace("interval,", "interval + 1,")),
        ("silent meters count without states", "expect(carry_over(head.last_rows,", "expect(carry_over(None,"),
        ("silent meters count without inputs", "terms, inputs)\n    expected_wh", "terms, {})\n    expected_wh"),
        ("the old key signs after a rotation", _SIGNER, _SIGNER.replace("key_in_force", "header.key")),
        ("the newest key signs before its time", _SIGNER, "list(self.signers)[-1]"),
        (
            "a plan with other intervals is used",
            "(terms.interval_s, terms.currency, terms.tick) != (interval_s, row.currency, row.tick)",
            "False",
        ),
        ("a forecast in spite of demand", "if row is not None and its is not None and", "if False and"),
        (
            "one missing key stops the batch",
            "            except MurmurateError as error:\n                drafts.refused",
            "            except KeyError as error:\n                drafts.refused",
        ),
        (
            "one bad plan stops its shard",
            _FIND_TERMS,
            _FIND_TERMS.replace("            return None\n", "            raise\n"),
        ),
        ("one bad plan stops the batch", _FIND_TERMS, _FIND_TERMS.replace("MurmurateError", "KeyError")),
        ("a zone that cannot be priced is not reported", "            withheld[row.zone] = str(error)\n", ""),
    ),
    PREDICTED_ROWS: (
        ("the answer to prices is ignored", "np.where(paid == NO_PRICE, 1.0, answered)", "answered * 0 + 1"),
        (
            "a withheld row forgets the states",
            'np.where((rows["kind"] == RowKind.WITHHELD)[:, None], carried.states, 0)',
            "0 * carried.states",
        ),
        (
            "a price that was withheld is due",
            'np.where(priced, last_rows["price_ticks"], NO_PRICE)',
            'last_rows["price_ticks"]',
        ),
        ("the states of another zone of its model", _ADVANCE, _ADVANCE.replace("states[at]", "states[at[::-1]]")),
        ("the noised demand of another zone of its model", _ADVANCE, _ADVANCE.replace("wh[at]", "wh[at[::-1]]")),
        ("the answer of another zone of its model", _ADVANCE, _ADVANCE.replace("factor[at]", "factor[at[::-1]]")),
        ("states without inputs", _ADVANCE, _ADVANCE.replace("self._inputs", "{}")),
        ("the price without inputs", "states[at], interval, lead, self._inputs)", "states[at], interval, lead, {})"),
        ("one zone is predicted for all", "zones.append(zone)", "zones.append(zones[0] if zones else zone)"),
        (
            "feed-in of silent meters answers to prices",
            "np.where(expected_wh < 0,",
            "np.where(expected_wh < -(10**30),",
        ),
        ("silent meters do not answer to prices", "expected_wh * self._paid_factor(carried, lead)", "expected_wh"),
        (
            "a row without a measurement is corrected",
            'rows["kind"] == RowKind.MEASURED, rows["noisy_wh"]',
            'rows["kind"] != RowKind.WITHHELD, rows["noisy_wh"]',
        ),
    ),
    ZONE_PREDICTION: (
        ("a surprise is not divided by the usual use", _SURPRISE, _SURPRISE.replace(" / usual", "")),
        ("a surprise ignores the price that was paid", _SURPRISE, _SURPRISE.replace(" / factor", "")),
        ("feed-in answers to prices", "factor = np.where(expected < 0, 1.0, paid_factor)", "factor = paid_factor"),
        ("surprises of a row without a measurement", "after = np.where(usable, after, faded)", "after = after * 1.0"),
        ("states do not fade", "    usual = _scales", "    faded = _to_floats(states)\n    usual = _scales"),
        ("inputs of the interval that pays, for the measured one", '"now", self.shown', '"ahead", self.shown'),
        ("inputs of the interval measured, for the one that pays", 'inputs, "ahead"), _to', 'inputs, "now"), _to'),
        ("the forecast of the interval measured", "expect_demand(interval + lead,", "expect_demand(interval,"),
        ("corrections fade once for any lead", "    for _ in range(lead):\n", "    for _ in range(1):\n"),
        ("the sum is expected as if nothing were cut off", "_expect(self.clipped,", "_expect(self.public.demand,"),
        ("the price is that of the clipped sum", "_expect(self.public.demand,", "_expect(self.clipped,"),
        ("the region is not cut off", "deviation * self.mean_wh * shown", "deviation * self.mean_wh"),
        ("a demand below what is plausible", "np.maximum(use_wh, MIN_USE * expected.use_wh)", "use_wh"),
        ("the sun is not corrected", "expected.sun_wh * (1.0 + faded[SUN])", "expected.sun_wh"),
        ("the sun is corrected twice", "    of_use[SUN] = 0.0\n", ""),
        ("one gain for all zones", "[zone.gain for zone in zones]", "[zones[0].gain for zone in zones]"),
        ("one size for all zones", "[zone.scale for zone in zones]", "[zones[0].scale for zone in zones]"),
        ("states are cut off instead of rounded", "np.rint(after / STATE_UNIT)", "np.trunc(after / STATE_UNIT)"),
        ("feed-in has a price that answers", "np.where(demand_wh < 0,", "np.where(demand_wh < -(10**30),"),
    ),
    CORRECTIONS: (
        ("the square of the surprise is not squared", _SQUARE, _SQUARE.replace("surprise * surprise", "surprise")),
        ("the planned square is not taken off", _SQUARE, _SQUARE.replace(" - surprise_square", "")),
        ("the square never forgets", _SQUARE, _SQUARE.replace(" - states[SQUARE]", "")),
        ("the square is that of a day", "(MEASURED_DAYS * slots_per_day)", "slots_per_day"),
        ("the hour before is corrected", "found[HOUR + hour]", "found[HOUR + hour - 1]"),
        ("the sun is not measured", "    found[SUN] = sun_wh / mean_wh\n", ""),
        ("states without a limit", "np.minimum(np.maximum(after, -MAX_STATE), MAX_STATE)", "after"),
        ("corrections ignore how much they are shown", "gain * loading[:, None] * surprise", "gain * surprise"),
        ("the level does not count", "loading[:, None])", "np.append(0.0, loading[1:])[:, None])"),
    ),
    OBJECT_LOG: OBJECT_LOG_BUGS,
    STORES: (
        ("a failed round keeps its locks", "        state.rollback()\n        raise\n", "        raise\n"),
        (
            "the error of a failed round is swallowed",
            "        state.rollback()\n        raise\n",
            "        state.rollback()\n",
        ),
        (
            "a saved round is not committed",
            "            state.save(new_heads, pending)\n",
            "            state.rollback()\n",
        ),
    ),
}


def seeded_mutants() -> Iterator[Mutant]:
    """Yield each seeded bug in its module. Raises LookupError unless the source contains the replaced text once."""
    for module, bugs in SEEDED_BUGS.items():
        source = source_of(module)
        for name, old, new in bugs:
            if (times := source.count(old)) != 1 or old == new:
                text = f"{name}: {module} contains {old!r} {times} times; update tests/simulation/seeded_bugs.py"
                raise LookupError(text)
            yield Mutant(f"seeded: {name}", module, source.replace(old, new))
