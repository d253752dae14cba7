"""The keys of an operator: a folder with one file for each, readable by its owner alone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from murmurate.errors import MurmurateError
from murmurate.public_log.signing import Ed25519Signer
from murmurate.service.storage import durable

_KEY_FILE_NAME = "signing-{:03d}.key"
_KEY_FILE_GLOB = "*signing-*.key"  # LoadCredential= of systemd puts the name of the credential before it


@dataclass(frozen=True, slots=True, kw_only=True)
class Keyring:
    """Every signing key, the newest last."""

    signers: tuple[Ed25519Signer, ...]

    @property
    def newest_signer(self) -> Ed25519Signer:
        return self.signers[-1]


class ReloadingSigners(Mapping[str, Ed25519Signer]):
    """The signers of a keyring by public key. A key that is not among them is looked for in the folder again.

    So a rotation that ends between two steps of a publisher is known at the next step, without a restart.
    """

    def __init__(self, keyring: Keyring, folder: Path | None) -> None:
        self._folder = folder
        self._signers = {signer.public_key: signer for signer in keyring.signers}

    def __getitem__(self, public_key: str) -> Ed25519Signer:
        if public_key not in self._signers and self._folder is not None:
            self._signers |= {signer.public_key: signer for signer in load_keyring(self._folder).signers}
        return self._signers[public_key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._signers)

    def __len__(self) -> int:
        return len(self._signers)


def has_keys(folder: Path) -> bool:
    return any(folder.glob(_KEY_FILE_GLOB))


def create_keyring(folder: Path) -> Keyring:
    """Return the keys of a folder; make the folder and its first key if it has none."""
    if not has_keys(folder):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        add_signing_key(folder)
    return load_keyring(folder)


def add_signing_key(folder: Path) -> Ed25519Signer:
    """Add one more signing key. Old ones stay: a chain that was set back may need them to continue.

    Its file is there whole or not at all: a worker that is running reads the folder at any time.
    """
    signer = Ed25519Signer.generate()
    path = folder / _KEY_FILE_NAME.format(len(list(folder.glob(_KEY_FILE_GLOB))) + 1)
    if not durable.write_once(path, f"{signer.private_bytes().hex()}\n".encode("ascii")):
        raise MurmurateError("keys", path, "exists already; run the command again")
    return signer


def load_keyring(folder: Path) -> Keyring:
    """Return the keys in a folder. Other files are ignored."""
    paths = sorted(folder.glob(_KEY_FILE_GLOB))
    if not paths:
        raise MurmurateError("the folder of keys", folder, "must hold a signing key; murmurate init makes one")
    try:
        return Keyring(signers=tuple(Ed25519Signer(bytes.fromhex(path.read_text(encoding="ascii"))) for path in paths))
    except ValueError:
        raise MurmurateError("the folder of keys", folder, "must hold keys of 64 hexadecimal digits each") from None
