"""Ed25519: who signed a record. Keys are 32 bytes, written as 64 hexadecimal digits."""

from __future__ import annotations

from functools import lru_cache
from typing import Protocol

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

from murmurate.errors import ChainError
from murmurate.public_log.canonical import is_hash


class Signer(Protocol):
    """Signs for one public key."""

    @property
    def public_key(self) -> str: ...

    def sign(self, message: bytes) -> str: ...


class Ed25519Signer:
    """A private key. It prints its public half only.

    >>> signer = Ed25519Signer(bytes(32))
    >>> verify_signature(signer.public_key, b"a price", signer.sign(b"a price"))
    True
    >>> signer
    Ed25519Signer(3b6a27bc…)
    """

    def __init__(self, private_key: bytes) -> None:
        self._key = Ed25519PrivateKey.from_private_bytes(private_key)
        self.public_key = self._key.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw).hex()

    @classmethod
    def generate(cls) -> Ed25519Signer:
        """A key from the operating system's randomness."""
        return cls(Ed25519PrivateKey.generate().private_bytes(Encoding.Raw, PrivateFormat.Raw, NoEncryption()))

    def private_bytes(self) -> bytes:
        """The private half, to be stored."""
        return self._key.private_bytes(Encoding.Raw, PrivateFormat.Raw, NoEncryption())

    def sign(self, message: bytes) -> str:
        return self._key.sign(message).hex()

    def __repr__(self) -> str:
        return f"Ed25519Signer({self.public_key[:8]}…)"


def verify_signature(public_key: str, message: bytes, signature: str) -> bool:
    """Whether the private half of `public_key` signed `message`."""
    try:
        _load_public_key(public_key).verify(bytes.fromhex(signature), message)
    except (InvalidSignature, ValueError):
        return False
    return True


@lru_cache(maxsize=1024)
def _load_public_key(public_key: str) -> Ed25519PublicKey:
    return Ed25519PublicKey.from_public_bytes(bytes.fromhex(public_key))


def check_public_key(public_key: str) -> str:
    """Return `public_key`, if it is an Ed25519 key in lower-case hexadecimal; ChainError otherwise."""
    if not is_hash(public_key):
        raise ChainError("key", public_key, "must be 64 hexadecimal digits, as murmurate init prints them")
    return public_key
