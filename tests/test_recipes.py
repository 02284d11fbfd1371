"""The recipes, run as they stand, each in an empty folder. That of the reverse proxy runs a real nginx."""

from __future__ import annotations

import http.client
import json
import os
import re
import shutil
import ssl
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from paceline.simulators.http import ModelHttpServer
from tests.support.terminals import Terminals, blocks, free_ports, on_this_machine, ports_of_the_docs

RECIPES = Path(__file__).parents[1] / "docs" / "recipes"
PROXY = RECIPES / "reverse-proxy.md"
READ = {"json job", "python", "toml", "sh"}
BIN = Path(sys.executable).parent


def environment(folder: Path) -> dict[str, str]:
    env = {name: value for name, value in os.environ.items() if not name.startswith(("PACELINE_", "AWS_"))}
    return env | {"PATH": f"{BIN}{os.pathsep}{env['PATH']}", "HOME": str(folder)}


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("page", sorted({*RECIPES.glob("*.md")} - {PROXY}), ids=lambda page: page.stem)
def test_recipe_does_what_it_says(page: Path, tmp_path: Path) -> None:
    ports, env = ports_of_the_docs(), environment(tmp_path)
    env["PACELINE_PORT"] = ports["8080"]
    with ModelHttpServer() as model, Terminals(tmp_path, env) as terminals:
        terminals.read(on_this_machine(page.read_text(), ports, model.base_url))


@pytest.mark.parametrize("page", sorted(RECIPES.glob("*.md")), ids=lambda page: page.stem)
def test_recipe_leaves_out_no_block(page: Path) -> None:
    found = blocks(page.read_text())
    unread = {info for info, _ in found if not info.startswith("console") and "file=" not in info}
    assert unread <= READ
    assert page == PROXY or "sh" not in unread


# -- the reverse proxy


class Asked:
    """Speaks HTTPS to the proxy and trusts its certificate."""

    def __init__(self, port: int, cert: Path) -> None:
        self._port, self._trust = port, ssl.create_default_context(cafile=str(cert))

    def __call__(
        self, method: str, path: str, body: bytes | None = None, **headers: str
    ) -> tuple[int, http.client.HTTPMessage, bytes]:
        with closing(http.client.HTTPSConnection("localhost", self._port, timeout=60, context=self._trust)) as there:
            there.request(method, path, body, {name.replace("_", "-"): value for name, value in headers.items()})
            answer = there.getresponse()
            return answer.status, answer.headers, answer.read()


@contextmanager
def process(*words: str, folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    with (folder / f"{Path(words[0]).name}.log").open("wb") as log:
        running = subprocess.Popen(words, cwd=folder, env=environment(folder), stdout=log, stderr=log)
        try:
            yield running
        finally:
            running.terminate()
            running.wait(timeout=60)


def make_certificate(folder: Path) -> None:
    name = ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"]
    made = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-keyout", "key.pem"]
    subprocess.run([*made, "-out", "cert.pem", *name], cwd=folder, check=True, capture_output=True)


def nginx_of_the_recipe(folder: Path, *, api: int, https: int, plain: int) -> list[str]:
    """Writes the recipe's file for this machine, and one around it as a distribution's own would be."""
    (text,) = [body for info, body in blocks(PROXY.read_text()) if info == "nginx file=paceline.conf"]
    for there, here in (
        ("127.0.0.1:8080", f"127.0.0.1:{api}"),
        ("listen 443 ssl", f"listen 127.0.0.1:{https} ssl"),
        ("listen 80;", f"listen 127.0.0.1:{plain};"),
        ("paceline.example.org", "localhost"),
        ("/etc/ssl/paceline.pem", f"{folder}/cert.pem"),
        ("/etc/ssl/paceline.key", f"{folder}/key.pem"),
    ):
        assert there in text
        text = text.replace(there, here)
    (folder / "paceline.conf").write_text(text)
    kinds = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    temporary = "".join(f"{kind}_temp_path {folder}/parts_{kind};\n" for kind in kinds)
    (folder / "nginx.conf").write_text(
        f"daemon off; pid {folder}/nginx.pid; error_log {folder}/errors.log; events {{}}\n"
        f"http {{ access_log off;\n{temporary}include {folder}/paceline.conf; }}\n"
    )
    program = shutil.which("nginx", path=f"{os.environ['PATH']}:/usr/sbin")
    assert program is not None
    return [program, "-p", str(folder), "-c", str(folder / "nginx.conf")]


def wait_for(ask: Asked, path: str) -> None:
    deadline_s = time.monotonic() + 60
    while time.monotonic() < deadline_s:
        try:
            if ask("GET", path)[0] == 200:
                return
        except OSError:
            pass
        time.sleep(0.1)
    raise AssertionError(f"nobody answers at {path}")


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("nginx", path=f"{os.environ['PATH']}:/usr/sbin") is None, reason="needs nginx")
def test_recipe_of_the_reverse_proxy_works_with_nginx(tmp_path: Path) -> None:
    api, https, plain = free_ports(3)
    make_certificate(tmp_path)
    added = subprocess.run(
        [str(BIN / "paceline"), "user", "add", "root", "--role", "admin", "--json"],
        cwd=tmp_path,
        env=environment(tmp_path),
        check=True,
        capture_output=True,
    )
    bearer = f"Bearer {json.loads(added.stdout)['token']}"
    ask = Asked(https, tmp_path / "cert.pem")
    nginx = nginx_of_the_recipe(tmp_path, api=api, https=https, plain=plain)
    with process(str(BIN / "paceline"), "up", "--port", str(api), folder=tmp_path), process(*nginx, folder=tmp_path):
        wait_for(ask, "/readyz")
        assert ask("GET", "/metrics")[0] == 403
        signed_in = ask("POST", "/ui/session", json.dumps({"token": bearer[7:]}).encode(), **own_page())
        cookie = signed_in[1]["Set-Cookie"]
        assert re.match(rf"paceline-{https}=\S+; .*; Secure$", cookie), signed_in
        ask("PUT", "/v1/providers/shop", b'{"base_url": "https://example.org/"}', **as_json(bearer))
        ask("PUT", "/v1/batches/night", b"{}", **as_json(bearer))
        lines = b"".join(b'{"id": "r%d", "provider": "shop", "endpoint": "/%0200d"}\n' % (n, n) for n in range(8_000))
        assert len(lines) > 1_500_000
        put = ask("PUT", "/v1/batches/night/records", lines, Authorization=bearer, Content_Type="application/x-ndjson")
        assert (put[0], json.loads(put[2])["created"]) == (200, 8_000)
        with closing(http.client.HTTPConnection("127.0.0.1", plain, timeout=60)) as there:
            there.request("GET", "/docs", headers={"Host": "localhost"})
            assert there.getresponse().headers["Location"] == "https://localhost/docs"


def own_page() -> dict[str, str]:
    return {"Content_Type": "application/json", "X_Paceline_Page": "1"}


def as_json(bearer: str) -> dict[str, str]:
    return {"Authorization": bearer, "Content_Type": "application/json"}
