"""Secrets at rest: sealed with AES-SIV under a key that is derived from the installation's own."""

from __future__ import annotations

import base64
import binascii

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.ciphers.aead import AESSIV
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from paceline.errors import WrongSetting

PURPOSE = b"paceline provider headers"
"""Bound to the key and to every sealed text, so a text that was sealed for another purpose cannot be opened here."""
VERSION = "v1."
KEY_BYTES = 64
KEY_BYTES_MIN = 16


class SecretVault:
    """Fills ``ports.Vault``.

    AES-SIV needs no nonce: the same secret is the same sealed text, so putting the same provider again changes nothing.
    """

    def __init__(self, secret_key: bytes) -> None:
        assert len(secret_key) >= KEY_BYTES_MIN
        derived = HKDF(algorithm=hashes.SHA256(), length=KEY_BYTES, salt=None, info=PURPOSE).derive(secret_key)
        self._cipher = AESSIV(derived)

    def seal(self, secret: str) -> str:
        # The byte in front is for the empty secret, which older OpenSSL refuses to seal.
        sealed = self._cipher.encrypt(b"." + secret.encode(), _bound())
        return VERSION + base64.urlsafe_b64encode(sealed).decode()

    def unseal(self, sealed: str) -> str:
        if not sealed.startswith(VERSION):
            raise _unreadable()
        try:
            text = self._cipher.decrypt(base64.urlsafe_b64decode(sealed.removeprefix(VERSION)), _bound())
        except (InvalidTag, ValueError, binascii.Error):
            raise _unreadable() from None
        return text[1:].decode()


def _bound() -> list[bytes]:
    return [PURPOSE, VERSION.encode()]


def _unreadable() -> WrongSetting:
    """Return the error for a text that cannot be opened. It names neither the sealed text nor the key."""
    return WrongSetting(
        "PACELINE_SECRET_KEY: headers, a body or an account's key were sealed with another secret. Start with the"
        " one they were sealed with (the setting, or the key file beside the store), or give the header values again,"
        " and remove the account's keys and add them again."
    )
