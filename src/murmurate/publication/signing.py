"""Ed25519: who signed a record. Keys are 32 bytes, written as 64 hexadecimal digits."""

from __future__ import annotations

from functools import lru_cache
from typing import Protocol

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

from murmurate.errors import ChainError


class Signer(Protocol):
    """Whoever can sign for one public key."""

    @property
    def public(self) -> str: ...

    def sign(self, message: bytes) -> str: ...


class Ed25519Signer:
    """A private key. It prints its public half only.

    >>> signer = Ed25519Signer(bytes(32))
    >>> verify(signer.public, b"a price", signer.sign(b"a price"))
    True
    >>> signer
    Ed25519Signer(3b6a27bc…)
    """

    def __init__(self, secret: bytes) -> None:
        self._key = Ed25519PrivateKey.from_private_bytes(secret)
        self.public = self._key.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw).hex()

    @classmethod
    def new(cls) -> Ed25519Signer:
        """A key from the operating system's randomness."""
        return cls(Ed25519PrivateKey.generate().private_bytes(Encoding.Raw, PrivateFormat.Raw, NoEncryption()))

    def secret(self) -> bytes:
        """The private half, for whoever stores it."""
        return self._key.private_bytes(Encoding.Raw, PrivateFormat.Raw, NoEncryption())

    def sign(self, message: bytes) -> str:
        return self._key.sign(message).hex()

    def __repr__(self) -> str:
        return f"Ed25519Signer({self.public[:8]}…)"


def verify(public: str, message: bytes, signature: str) -> bool:
    """Whether the private half of `public` signed `message`."""
    try:
        _public_key(public).verify(bytes.fromhex(signature), message)
    except (InvalidSignature, ValueError):
        return False
    return True


@lru_cache(maxsize=1024)
def _public_key(public: str) -> Ed25519PublicKey:
    return Ed25519PublicKey.from_public_bytes(bytes.fromhex(public))


def refuse_bad_key(public: str) -> str:
    """`public`, if it is an Ed25519 key in lower-case hexadecimal; ChainError otherwise."""
    if len(public) != 64 or any(digit not in "0123456789abcdef" for digit in public):
        raise ChainError("key", public, "must be 64 hexadecimal digits, as murmurate keys prints them")
    return public
