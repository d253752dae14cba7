"""Check a public log from public data alone: signatures, chains, plans, costs. Nothing of the operator is believed.

Sources are read item by item: documents first, then tiles, then lines of single zones. Of each tile 64 bytes are kept,
to notice a second one in its place, and a bit of each row. Where two signed items contradict each other, the sources
are read once more for the earlier of the two: both together are a proof that anyone can check (`contradiction`).

What no reader can see from a log alone: tiles missing at its end, and whether the demand was right.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from hashlib import sha256

from murmurate.public_log.canonical import canonical_json
from murmurate.public_log.signing import check_public_key, verify_signature
from murmurate.public_log.tile import TileKind, parse_header
from murmurate.public_log.tile_chain import VerifySignature
from murmurate.verification.check_context import READ_ERRORS, CheckContext
from murmurate.verification.final_pass import FinalPass
from murmurate.verification.line_pass import LinePass
from murmurate.verification.log_item import ItemKind, LogItem, LogSource, find_kind, read_items
from murmurate.verification.report import VerificationReport
from murmurate.verification.tile_pass import TilePass

RecordProgress = Callable[[int], None]  # is told how many records are done


def check_log(
    sources: Mapping[str, LogSource],
    *,
    plans: Iterable[str] = (),
    expected_key: str | None = None,
    zones: Collection[str] | None = None,
    progress: RecordProgress = lambda _: None,
    verify: VerifySignature = verify_signature,
    known_tiles: Mapping[str, tuple[int, str]] | None = None,
) -> VerificationReport:
    """Check a public log, or several copies of one, and return a report of everything that is wrong.

    Signatures, chains, plans and costs are checked from public data alone. A source has tiles of shards with their zone
    tables and plans, or lines of single zones with their plans. What a log cannot show: tiles missing at its end, and
    whether the demand was right.

    Args:
        sources: For each copy a name and a function that returns its items from the first one: tiles, zone tables,
            plans and lines of zones, as bytes or text. Put the fullest copy first.
        plans: Further plan documents, as texts.
        expected_key: Public key that must have opened each chain, or signed who comes after it, 64 hexadecimal digits;
            None: the first key seen is trusted and reported.
        zones: Names of the zones to check; None: all.
        progress: Is called with the number of records that are done. A record is what was decided for one zone and
            interval.
        verify: Returns whether a public key signed a message: (key, message, signature). The default is Ed25519.
        known_tiles: Number and hash of a tile of each shard that was checked before, from `last_tiles` of an earlier
            report: the shard may begin with it. None: each must begin with its first tile.

    Returns:
        The report: `is_valid` (nothing is wrong), `is_complete` (no plan was missing, nor releases that a copy says are
        in an archive), `findings`, `proofs` of misbehaviour, and a summary of each zone with its total cost [millionths
        of epsilon or rho].

    Raises:
        ChainError: `expected_key` is not a public key.

    Example:
        >>> import murmurate as mm
        >>> report = mm.check_log({"copy": lambda: [b"not a tile"]})
        >>> report.is_valid, [(finding.source, finding.rule) for finding in report.findings]
        (False, [('copy', 'unreadable')])
    """
    if expected_key is not None:
        check_public_key(expected_key)
    context = CheckContext(expected_key, verify, zones, known_tiles)
    tiles = TilePass(context)
    lines = LinePass(context, tiles)
    for text in plans:
        context.plans.add_document(text)
    kinds = {name: _read_documents(context, tiles, name, source) for name, source in sources.items()}
    begins_s = {name: _first_release_s(source) for name, source in sources.items()} if len(sources) > 1 else {}
    for kind, check in ((ItemKind.TILE, tiles.check_tile), (ItemKind.ZONE_LINE, lines.check_line)):
        for name in sorted((name for name in sources if kind in kinds[name]), key=lambda name: begins_s.get(name, 0)):
            for item in _items_of(sources[name], kind):
                check(item, name)
                progress(context.report.records_by_source.total())
    tiles.finish()
    final = FinalPass(context, tiles, lines, lambda wanted: _find_items(sources, wanted))
    final.check_keys()
    final.check_changes()
    final.check_shards()
    final.note_beginnings()
    final.prove_conflicts()
    return context.report


def _read_documents(context: CheckContext, tiles: TilePass, name: str, source: LogSource) -> set[ItemKind]:
    """Keep the documents of a source. Returns the kinds of its items."""
    kinds: set[ItemKind] = set()
    for item in read_items(source):
        kind = find_kind(item.data)
        kinds.add(kind)
        if kind is ItemKind.TILE:
            tiles.note_tile(item)
        elif kind is not ItemKind.ZONE_LINE:
            context.add_document(kind, item, name)
    return kinds


def _first_release_s(source: LogSource) -> int:
    """Return when the first release of a source begins [s of UTC]: an archive is read before what continues it."""
    for item in _items_of(source, ItemKind.TILE):
        try:
            header = parse_header(item.data.partition(b"\n")[0].decode())[0]
        except READ_ERRORS:
            continue
        if header.kind is TileKind.RELEASE:
            return header.interval * header.interval_s
    return 0


def _items_of(source: LogSource, kind: ItemKind) -> Iterator[LogItem]:
    return (item for item in read_items(source) if find_kind(item.data) is kind)


def _find_items(sources: Mapping[str, LogSource], wanted: Collection[str]) -> dict[str, bytes]:
    """Return the tiles and lines of zones with these hashes: a tile has that of its header, a line its own as well."""
    found: dict[str, bytes] = {}
    for source in sources.values():
        for item in read_items(source):
            kind = find_kind(item.data)
            if kind is ItemKind.TILE:
                hashes = [sha256(item.data.partition(b"\n")[0]).hexdigest()]
            elif kind is ItemKind.ZONE_LINE:
                hashes = [sha256(item.data).hexdigest(), *_header_hash(item.data)]
            else:
                continue
            for each in hashes:
                if each in wanted:
                    found.setdefault(each, item.data)
    return found


def _header_hash(line: bytes) -> list[str]:
    """The hash of the tile that a line of a zone is about."""
    try:
        return [sha256(canonical_json(json.loads(line)["tile"]).encode()).hexdigest()]
    except (KeyError, RecursionError, TypeError, ValueError):
        return []
