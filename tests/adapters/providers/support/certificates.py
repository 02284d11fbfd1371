"""Certificates made for a test, and a TLS server that shows one."""

from __future__ import annotations

import contextlib
import datetime as dt
import ipaddress
import socket
import ssl
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

Key = ec.EllipticCurvePrivateKey


class Authority(NamedTuple):
    name: str
    key: Key
    file: Path


def make_authority(folder: Path, name: str = "Test Authority") -> Authority:
    key = ec.generate_private_key(ec.SECP256R1())
    certificate = _certificate(name, key, issuer=name, issuer_key=key, hosts=(), days=(-1, 3_650), is_authority=True)
    file = folder / f"{name}.pem"
    file.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    return Authority(name, key, file)


def make_chain_file(
    folder: Path, authority: Authority | None, *, hosts: Sequence[str], days: tuple[int, int] = (-1, 90)
) -> Path:
    """Makes a certificate with its key, signed by the authority or self-signed; ``days`` is its validity from now."""
    key = ec.generate_private_key(ec.SECP256R1())
    issuer, issuer_key = (authority.name, authority.key) if authority else ("Server", key)
    certificate = _certificate("Server", key, issuer=issuer, issuer_key=issuer_key, hosts=hosts, days=days)
    file = folder / f"server-{certificate.serial_number}.pem"
    secret = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    file.write_bytes(certificate.public_bytes(serialization.Encoding.PEM) + secret)
    return file


@contextlib.contextmanager
def tls_server(chain_file: Path) -> Iterator[int]:
    """Runs a TLS server that answers every request with 200; yields its port."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(chain_file)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=_serve, args=(listener, context))
        thread.start()
        try:
            yield listener.getsockname()[1]
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join()


def _serve(listener: socket.socket, context: ssl.SSLContext) -> None:
    while True:
        try:
            raw, _ = listener.accept()
        except OSError:
            return
        raw.settimeout(2)
        with contextlib.suppress(OSError), raw, context.wrap_socket(raw, server_side=True) as connection:
            if connection.recv(4_096):
                connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok")


def _certificate(
    name: str,
    key: Key,
    *,
    issuer: str,
    issuer_key: Key,
    hosts: Sequence[str],
    days: tuple[int, int],
    is_authority: bool = False,
) -> x509.Certificate:
    now = dt.datetime.now(dt.UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]))
        .issuer_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, issuer)]))
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now + dt.timedelta(days=days[0]))
        .not_valid_after(now + dt.timedelta(days=days[1], minutes=5))
        .add_extension(x509.BasicConstraints(ca=is_authority, path_length=None), critical=True)
    )
    if hosts:
        builder = builder.add_extension(x509.SubjectAlternativeName([_name(host) for host in hosts]), critical=False)
    return builder.sign(issuer_key, hashes.SHA256())


def _name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)
