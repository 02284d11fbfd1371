"""HTTPS: with the operator's files, with certificates made by Paceline, and errors if they cannot be used."""

from __future__ import annotations

import asyncio
import datetime as dt
import http.client
import json
import os
import signal
import socket
import ssl
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from starlette.types import Receive, Scope, Send

from paceline.adapters import certificates
from paceline.adapters.certificates import CertificateFiles, make_certificates, own_names
from paceline.config import load_settings
from paceline.errors import WrongSetting
from paceline.shells.api.http.serving import server_config
from paceline.shells.daemon import daemon
from paceline.wiring import SystemClock, open_system, open_tls

NOW = dt.datetime(2026, 11, 15, tzinfo=dt.UTC)
DAY = dt.timedelta(days=1)


def made(folder: Path, now: dt.datetime = NOW, names: tuple[str, ...] = ("paceline.example",)) -> CertificateFiles:
    return make_certificates(folder, "p", names=names, now=now)


def certificate(file: Path) -> x509.Certificate:
    return x509.load_pem_x509_certificate(file.read_bytes())


def mode(file: Path) -> int:
    return stat.S_IMODE(file.stat().st_mode)


def test_authority_file_is_readable_by_all_and_private_keys_by_the_owner_only(tmp_path: Path) -> None:
    files = made(tmp_path)
    assert {file.name: mode(file) for file in tmp_path.iterdir()} == {
        "p-ca.pem": 0o644,
        "p-ca.key": 0o600,
        "p-tls.pem": 0o600,
    }
    assert b"PRIVATE" not in files.authority.read_bytes()
    names = certificate(files.server).extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert set(names.get_values_for_type(x509.DNSName)) == {"localhost", "paceline.example"}
    assert {str(one) for one in names.get_values_for_type(x509.IPAddress)} == {"127.0.0.1", "::1"}


def test_valid_certificate_is_kept_and_an_expiring_one_is_renewed_under_the_same_authority(tmp_path: Path) -> None:
    first = made(tmp_path)
    server, authority = first.server.read_bytes(), first.authority.read_bytes()
    assert made(tmp_path, NOW + 300 * DAY).server.read_bytes() == server
    again = made(tmp_path, NOW + 380 * DAY)
    assert again.server.read_bytes() != server
    assert again.authority.read_bytes() == authority
    certificate(again.server).verify_directly_issued_by(certificate(again.authority))
    assert certificate(again.server).not_valid_after_utc > NOW + 700 * DAY
    made(tmp_path, NOW + 3_640 * DAY)
    assert first.authority.read_bytes() != authority


def test_new_host_name_or_broken_file_makes_a_new_certificate(tmp_path: Path) -> None:
    files = made(tmp_path)
    server, authority = files.server.read_bytes(), files.authority.read_bytes()
    made(tmp_path, names=("paceline.example", "198.51.100.7", "not a name \u00e9"))
    assert files.server.read_bytes() != server
    files.server.write_bytes(b"nonsense")
    files.authority.unlink()
    made(tmp_path)
    assert certificate(files.server).not_valid_after_utc > NOW
    assert files.authority.read_bytes() == authority


def test_two_first_starts_at_once_use_the_same_authority(tmp_path: Path) -> None:
    kept = tmp_path / "p-ca.key"
    first = certificates._pem(certificates._new_authority(NOW))
    certificates._write_first(kept, first)
    certificates._write_first(kept, certificates._pem(certificates._new_authority(NOW)))
    assert kept.read_bytes() == first
    assert certificate(made(tmp_path).authority) == certificate(kept)


def test_self_signed_certificate_covers_the_host_names_of_this_machine() -> None:
    assert own_names("0.0.0.0")[0] == socket.gethostname()  # noqa: S104
    assert own_names("198.51.100.7")[0] == "198.51.100.7"


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"tls_cert": "p-tls.pem"}, "PACELINE_TLS_CERT needs PACELINE_TLS_KEY (or --tls-key) too."),
        ({"tls_key": "p-tls.pem"}, "PACELINE_TLS_KEY needs PACELINE_TLS_CERT (or --tls-cert) too."),
        ({"tls_cert": "p-tls.pem", "tls_key": "none.pem"}, "cannot be used: No such file or directory."),
        ({"tls_cert": "p-ca.pem", "tls_key": "p-tls.pem"}, "cannot be used: "),
        ({"tls_cert": "p-tls.pem", "tls_self_signed": True}, "PACELINE_TLS_SELF_SIGNED: either this, or"),
    ],
)
def test_wrong_tls_setting_is_refused_with_one_clear_line(tmp_path: Path, given: dict[str, Any], words: str) -> None:
    made(tmp_path)
    paths = {name: tmp_path / value if isinstance(value, str) else value for name, value in given.items()}
    with pytest.raises(WrongSetting) as refused:
        open_tls(load_settings(store=f"sqlite:///{tmp_path / 'x.db'}", **paths), SystemClock())
    assert words in str(refused.value)


def test_store_in_memory_keeps_its_certificates_in_another_folder() -> None:
    settings = load_settings(store="sqlite:///:memory:", tls_self_signed=True)
    first, again = open_tls(settings, SystemClock()), open_tls(settings, SystemClock())
    assert first is not None
    assert first == again
    assert first.authority is not None
    assert not first.authority.is_relative_to(Path.cwd())


@contextmanager
def started(folder: Path, *flags: str) -> Iterator[dict[str, Any]]:
    """A real process; what it said when it was up, and its log on the way out."""
    environment = os.environ | {"PACELINE_STORE": f"sqlite:///{folder / 'p.db'}", "PACELINE_SYNCHRONOUS": "normal"}
    command = [sys.executable, "-m", "paceline", "up", "--json", "--port", "0", "--log-level", "warning", *flags]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=log)
    assert process.stdout is not None
    try:
        line = process.stdout.readline()
        assert line, (folder / "log").read_text()
        yield json.loads(line)
    finally:
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
        process.stdout.close()


def answer_of(connection: socket.socket) -> bytes:
    try:
        return connection.recv(1_000)
    except ConnectionResetError:
        return b""


def alive(url: str, authority: Path | None, *, host: str = "127.0.0.1") -> int:
    port = int(url.rpartition(":")[2])
    context = ssl.create_default_context(cafile=authority)
    context.verify_flags |= ssl.VERIFY_X509_STRICT
    connection = http.client.HTTPSConnection(host, port, context=context, timeout=10)
    try:
        connection.request("GET", "/healthz")
        return connection.getresponse().status
    finally:
        connection.close()


def test_up_serves_only_https_to_clients_that_trust_its_authority(tmp_path: Path) -> None:
    with started(tmp_path, "--tls-self-signed") as told:
        assert told["url"].startswith("https://127.0.0.1:")
        authority = Path(told["ca"])
        assert authority == tmp_path / "p-ca.pem"
        assert alive(told["url"], authority) == 200
        assert alive(told["url"], authority, host="localhost") == 200
        with pytest.raises(ssl.SSLCertVerificationError):
            alive(told["url"], None)
        # A client that speaks plain HTTP is turned away, and that is nothing to log.
        port = int(told["url"].rpartition(":")[2])
        with socket.create_connection(("127.0.0.1", port), timeout=10) as plain:
            plain.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
            assert b"HTTP" not in answer_of(plain)
    assert (tmp_path / "log").read_text() == ""


def test_up_serves_the_operators_own_certificate(tmp_path: Path) -> None:
    other = tmp_path / "elsewhere"
    other.mkdir()
    files = make_certificates(other, "own", names=(), now=dt.datetime.now(dt.UTC))
    key = other / "own.key"
    key.write_bytes(files.server.read_bytes())
    with started(tmp_path, "--tls-cert", str(files.server), "--tls-key", str(key)) as told:
        assert "ca" not in told
        assert alive(told["url"], files.authority) == 200
    assert [file.name for file in tmp_path.glob("*.pem")] == []


def test_a_certificate_without_its_key_stops_the_start(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "paceline", "--store", f"sqlite:///{tmp_path / 'p.db'}", "up", "--port", "0"]
    ran = subprocess.run([*command, "--tls-cert", "x.pem"], capture_output=True, text=True, timeout=60, check=False)
    assert ran.returncode != 0
    assert "PACELINE_TLS_CERT needs PACELINE_TLS_KEY" in ran.stderr


def test_a_renewed_certificate_serves_the_next_connection_without_a_restart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(daemon, "RENEW_S", 0.02)
    system = open_system(load_settings(store=f"sqlite:///{tmp_path / 'p.db'}", tls_self_signed=True, port=0))
    tls = system.tls
    assert tls is not None
    config = server_config(_silent, system.settings, tls=tls)
    config.load()

    async def serials() -> tuple[int, int]:
        server = await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 0, ssl=config.ssl)
        renewing = asyncio.create_task(daemon._renew_certificate(system, config))
        port = server.sockets[0].getsockname()[1]
        first = await asyncio.to_thread(_serial, port)
        tls.cert.unlink()
        for _ in range(500):
            if (second := await asyncio.to_thread(_serial, port)) != first:
                break
        renewing.cancel()
        server.close()
        return first, second

    first, second = asyncio.run(serials())
    assert first != second
    assert second == certificate(tls.cert).serial_number
    system.store.close()


async def _silent(_scope: Scope, _receive: Receive, _send: Send) -> None:
    raise AssertionError("nobody asks")


def _serial(port: int) -> int:
    return x509.load_pem_x509_certificate(ssl.get_server_certificate(("127.0.0.1", port)).encode()).serial_number
