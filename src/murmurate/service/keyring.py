"""The keys of an operator: a folder with one file for each, readable by its owner alone."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from murmurate.errors import MurmurateError
from murmurate.public_log.signing import Ed25519Signer

_KEY_FILE_NAME = "signing-{:03d}.key"
_KEY_FILE_GLOB = "signing-*.key"


@dataclass(frozen=True, slots=True, kw_only=True)
class Keyring:
    """Every signing key, the newest last."""

    signers: tuple[Ed25519Signer, ...]

    @property
    def newest_signer(self) -> Ed25519Signer:
        return self.signers[-1]


def create_keyring(folder: Path) -> Keyring:
    """A new folder with new keys; refuses one that has keys already."""
    if any(folder.glob(_KEY_FILE_GLOB)):
        raise MurmurateError("keys", folder, "has keys already; murmurate rotate adds one")
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    add_signing_key(folder)
    return load_keyring(folder)


def add_signing_key(folder: Path) -> Ed25519Signer:
    """One more signing key. Old ones stay: a chain that was set back may need them to go on."""
    signer = Ed25519Signer.generate()
    _write_key_file(folder / _KEY_FILE_NAME.format(len(list(folder.glob(_KEY_FILE_GLOB))) + 1), signer.private_bytes())
    return signer


def load_keyring(folder: Path) -> Keyring:
    """The keys in a folder that `make_keys` made. Other files are ignored."""
    paths = sorted(folder.glob(_KEY_FILE_GLOB))
    if not paths:
        raise MurmurateError("keys", folder, "has no keys; make some with murmurate keys")
    try:
        return Keyring(signers=tuple(Ed25519Signer(bytes.fromhex(path.read_text(encoding="ascii"))) for path in paths))
    except ValueError:
        raise MurmurateError("keys", folder, "holds a file that is not 64 hexadecimal digits") from None


def _write_key_file(path: Path, private_key: bytes) -> None:
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="ascii") as file:
        file.write(private_key.hex() + "\n")
