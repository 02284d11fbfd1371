"""The certificate authorities that this machine trusts. The wheels of libcurl bring none."""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import NamedTuple

_FILES = (
    "/etc/ssl/certs/ca-certificates.crt",  # Debian, Ubuntu, Arch, Gentoo
    "/etc/pki/tls/certs/ca-bundle.crt",  # Fedora, Red Hat
    "/etc/ssl/ca-bundle.pem",  # openSUSE
    "/etc/ssl/cert.pem",  # Alpine, macOS, the BSDs
    "/opt/homebrew/etc/openssl@3/cert.pem",
)


class Authorities(NamedTuple):
    """A file or a directory of trusted certificates; if both are None, no certificate can be verified."""

    file: str | None
    directory: str | None


def find_authorities(file: Path | None = None) -> Authorities:
    """Return the given file; else the one that OpenSSL uses (SSL_CERT_FILE, SSL_CERT_DIR); else one at a usual path."""
    if file is not None:
        return Authorities(str(file), None)
    usual = ssl.get_default_verify_paths()
    for candidate in filter(None, (usual.cafile, *_FILES)):
        if Path(candidate).is_file():
            return Authorities(candidate, None)
    return Authorities(None, usual.capath)
