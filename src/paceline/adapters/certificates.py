"""A private certificate authority and a server certificate issued by it, for HTTPS without an outside authority."""

from __future__ import annotations

import ipaddress
import os
import secrets
import socket
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import NamedTuple

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

AUTHORITY_DAYS = 3_650
SERVER_DAYS = 397
"""Clients refuse server certificates that are valid for longer."""
RENEW_DAYS = 30
ALWAYS = ("localhost", "127.0.0.1", "::1")
_PEM = serialization.Encoding.PEM
_NOWHERE = ("192.0.2.1", 9)
"""No packet is sent there: connecting a datagram socket only chooses the local address that would be used."""


class CertificateFiles(NamedTuple):
    """``server`` holds the certificate and its key; ``authority`` is the file to hand to clients."""

    server: Path
    authority: Path


class _Pair(NamedTuple):
    key: ec.EllipticCurvePrivateKey
    certificate: x509.Certificate


def make_certificates(folder: Path, stem: str, *, names: Sequence[str], now: datetime) -> CertificateFiles:
    """Create the authority and the server certificate, or renew them near their end or for other names.

    The authority is kept as long as it is valid, so that clients need no new file.
    """
    kept, shown, server = (folder / f"{stem}-{part}" for part in ("ca.key", "ca.pem", "tls.pem"))
    authority = _authority(kept, now)
    _write(shown, authority.certificate.public_bytes(_PEM), mode=0o644)
    wanted = [one for one in dict.fromkeys([*ALWAYS, *names]) if _alternative(one) is not None]
    if not _serves(server, authority, wanted, now):
        _write(server, _pem(_issue(authority, wanted, now)), mode=0o600)
    return CertificateFiles(server, shown)


def own_names(host: str) -> list[str]:
    """Return the names of this machine: the address it listens on, its host name and its own network address."""
    names = [host, socket.gethostname()]
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.connect(_NOWHERE)
            names.append(probe.getsockname()[0])
    except OSError:  # a machine without a network has no address but its own loopback
        pass
    return [name for name in names if name not in ("", "0.0.0.0", "::")]  # noqa: S104  left out, not listened on


def _authority(file: Path, now: datetime) -> _Pair:
    found = _read(file)
    if found is not None and _lasts(found.certificate, now):
        return found
    pem = _pem(_new_authority(now))
    if found is None and not file.exists():
        _write_first(file, pem)  # if two processes start for the first time at once, both use the file written first
    else:
        _write(file, pem, mode=0o600)
    made = _read(file)
    assert made is not None
    return made


def _new_authority(now: datetime) -> _Pair:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"Paceline CA {secrets.token_hex(4)}")])
    certificate = (
        _builder(name, name, key.public_key(), now, days=AUTHORITY_DAYS)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs_certificates=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )
    return _Pair(key, certificate)


def _issue(authority: _Pair, names: Iterable[str], now: datetime) -> _Pair:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "Paceline")])
    alternatives = [one for one in map(_alternative, names) if one is not None]
    certificate = (
        _builder(name, authority.certificate.subject, key.public_key(), now, days=SERVER_DAYS)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectAlternativeName(alternatives), critical=False)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(authority.key.public_key()),
            critical=False,
        )
        .sign(authority.key, hashes.SHA256())
    )
    return _Pair(key, certificate)


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, now: datetime, *, days: int
) -> x509.CertificateBuilder:
    """Return a builder for a certificate that is valid from yesterday, because clients' clocks may be behind."""
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=days - 1))
    )


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _alternative(name: str) -> x509.GeneralName | None:
    """Return the name as a certificate lists it; None if a certificate cannot hold it."""
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        pass
    try:
        return x509.DNSName(name)
    except ValueError:
        return None


def _serves(file: Path, authority: _Pair, names: Iterable[str], now: datetime) -> bool:
    found = _read(file)
    if found is None or not _lasts(found.certificate, now):
        return False
    try:
        found.certificate.verify_directly_issued_by(authority.certificate)
    except (ValueError, TypeError, InvalidSignature):
        return False
    held = found.certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    return all(_alternative(name) in set(held) for name in names)


def _lasts(certificate: x509.Certificate, now: datetime) -> bool:
    return certificate.not_valid_before_utc <= now < certificate.not_valid_after_utc - timedelta(days=RENEW_DAYS)


def _read(file: Path) -> _Pair | None:
    """Return the pair in the file; None if the file is missing or holds no pair of ours, so a new one is made."""
    try:
        text = file.read_bytes()
        key = serialization.load_pem_private_key(text, None)
        certificate = x509.load_pem_x509_certificate(text)
    except (FileNotFoundError, ValueError, TypeError):
        return None
    return _Pair(key, certificate) if isinstance(key, ec.EllipticCurvePrivateKey) else None


def _pem(pair: _Pair) -> bytes:
    key = pair.key.private_bytes(_PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    return pair.certificate.public_bytes(_PEM) + key


def _write(file: Path, text: bytes, *, mode: int) -> None:
    """Replace the file in one step. It is never half written, and never readable to others for a moment."""
    if file.exists() and file.read_bytes() == text:
        return
    draft = _draft(file, text, mode=mode)
    draft.replace(file)


def _write_first(file: Path, text: bytes) -> None:
    draft = _draft(file, text, mode=0o600)
    try:
        os.link(draft, file)
    except FileExistsError:
        pass
    finally:
        draft.unlink()


def _draft(file: Path, text: bytes, *, mode: int) -> Path:
    draft = file.with_name(f"{file.name}.{os.getpid()}.{secrets.token_hex(4)}")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as out:
        out.write(text)
        out.flush()
        os.fsync(out.fileno())
        os.fchmod(out.fileno(), mode)
    return draft
