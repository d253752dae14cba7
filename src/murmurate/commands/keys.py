"""`murmurate keys`: create the signing keys of an operator."""

from __future__ import annotations

from pathlib import Path

from murmurate.commands.console import stdout
from murmurate.commands.json_output import print_json
from murmurate.service.keyring import create_keyring


def create_keys(folder: Path, *, as_json: bool = False) -> None:
    """`murmurate keys`."""
    keyring = create_keyring(folder)
    if as_json:
        print_json({"public_key": keyring.newest_signer.public_key, "folder": str(folder)})
        return
    stdout.print(f"Public key: {keyring.newest_signer.public_key}")
    stdout.print("Publish it in a place other than the log. Readers verify the log with it.")
    stdout.print(f"Keep a copy of {folder}/ where only you can read it: its holder can sign for you.")
