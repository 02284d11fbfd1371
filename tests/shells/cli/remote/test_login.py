"""Which service a command talks to, and its messages when it cannot reach it."""

from __future__ import annotations

import json
import socket
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from paceline.config import load_settings
from paceline.shells.cli.app import main
from paceline.wiring import open_system
from tests.shells.api.conftest import World, serving
from tests.shells.cli.support.program import free_port

TOKEN = "pl_nobody_0000"


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with serving(tmp_path_factory.mktemp("elsewhere"), wrong_tokens_max=1_000) as running:
        running.add("root", "admin")
        running.add("alice")
        yield running


@pytest.fixture
def url(world: World) -> str:
    return f"http://127.0.0.1:{world.port}"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder for the command, with nothing in the environment."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    for name in ("PACELINE_STORE", "PACELINE_URL", "PACELINE_TOKEN", "PACELINE_CA_FILE"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


def token_file(folder: Path, token: str) -> str:
    file = folder / "token"
    file.write_text(f"{token}\n")
    return str(file)


@pytest.mark.usefixtures("folder")
def test_login_tries_the_token_and_keeps_it_for_its_owner_alone(
    world: World, url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    token = world.tokens["alice"]
    assert main(["login", "--url", url, "--token-file", token_file(tmp_path, token)]) == 0
    told = capsys.readouterr()
    file = tmp_path / "config" / "paceline" / "login.json"
    assert told.out == f"Logged in to {url} as user alice. The token is in {file}.\n"
    assert token not in told.out + told.err
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert main(["user", "budget", "alice"]) == 0
    assert "alice" in capsys.readouterr().out
    assert main(["logout"]) == 0
    assert capsys.readouterr().out == f"Logged out of {url}.\n"
    assert not file.exists()
    assert main(["user", "budget", "alice"]) == 3


@pytest.mark.usefixtures("folder")
def test_login_with_a_wrong_token_keeps_nothing(url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["login", "--url", url, "--token-file", token_file(tmp_path, TOKEN)]) == 1
    told = capsys.readouterr().err
    assert "--token-file FILE, PACELINE_TOKEN, or paceline login. (unauthenticated)" in told
    assert TOKEN not in told
    assert not (tmp_path / "config").exists()


@pytest.mark.usefixtures("folder")
def test_login_that_others_can_read_is_not_used(
    world: World, url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main(["login", "--url", url, "--token-file", token_file(tmp_path, world.tokens["root"])])
    (tmp_path / "config" / "paceline" / "login.json").chmod(0o644)
    assert main(["user", "list"]) == 2
    assert "chmod 600" in capsys.readouterr().err
    assert main(["logout"]) == 0


@pytest.mark.usefixtures("folder")
def test_a_store_that_is_named_comes_before_a_login(
    world: World, url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    store = f"sqlite:///{tmp_path}/own.db"
    open_system(load_settings(store=store)).store.close()
    main(["login", "--url", url, "--token-file", token_file(tmp_path, world.tokens["root"])])
    capsys.readouterr()

    def users() -> int:
        assert main(["user", "list", "--json"]) == 0
        return len(json.loads(capsys.readouterr().out)["items"])

    assert users() == 2
    assert main(["--store", store, "user", "list", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["items"] == []
    monkeypatch.setenv("PACELINE_STORE", store)
    assert users() == 0
    monkeypatch.setenv("PACELINE_URL", url)
    assert users() == 2
    assert main(["--store", store, "--url", url, "user", "list"]) == 2
    assert "either --store or --url" in capsys.readouterr().err


@pytest.mark.usefixtures("folder")
def test_a_token_on_the_command_line_is_warned_of(world: World, url: str, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--url", url, "--token", world.tokens["root"]]
    assert main([*words, "user", "list"]) == 0
    told = capsys.readouterr()
    assert told.err.startswith("Warning: a token on the command line can be read by other users")
    assert world.tokens["root"] not in told.err
    assert main([*words, "user", "list", "--json"]) == 0
    assert capsys.readouterr().err == ""


@pytest.mark.usefixtures("folder")
def test_plain_user_is_refused_admin_commands_and_sees_their_own_monitors(
    world: World, url: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PACELINE_URL", url)
    monkeypatch.setenv("PACELINE_TOKEN", world.tokens["alice"])
    assert main(["user", "list"]) == 1
    assert "(forbidden)" in capsys.readouterr().err
    assert main(["monitor", "set", "mine", "--tcp", "example.org:1", "--every", "1h"]) == 0
    assert main(["monitor", "list", "--json"]) == 0
    assert "alice" in capsys.readouterr().out
    assert main(["monitor", "list", "--user", "root"]) == 3


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        (["--url", "http://127.0.0.1:{closed}"], 1, "Is paceline up running there, and is --url right? (unreachable)"),
        (["--url", "https://127.0.0.1:{port}"], 1, "Should --url begin with http:// ? (untrusted)"),
        (["--url", "{url}/elsewhere"], 3, "(not_found)"),
        (["--url", "ftp://127.0.0.1"], 2, "write http://… or https://…"),
        (["--url", "{url}", "--ca-file", "missing.pem"], 2, "--ca-file"),
        (["--token", TOKEN], 2, "say which Paceline it belongs to"),
        (["user", "list", "--url", "{url}"], 2, "It stands before the command: paceline --url URL …"),
    ],
)
def test_command_that_cannot_reach_or_enter_the_service_says_what_to_do(
    world: World,
    url: str,
    words: list[str],
    code: int,
    told: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if "--token" not in words:
        monkeypatch.setenv("PACELINE_TOKEN", world.tokens["root"])
    filled = [word.format(url=url, port=world.port, closed=free_port()) for word in words]
    assert main([*filled, *([] if "user" in words else ["user", "list"])]) == code
    assert told in capsys.readouterr().err


@pytest.mark.usefixtures("folder")
def test_a_url_without_a_token_says_how_to_give_one(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--url", url, "user", "list"]) == 2
    assert "needs a token: --token-file FILE, PACELINE_TOKEN, or paceline login." in capsys.readouterr().err


@pytest.mark.usefixtures("folder")
def test_a_certificate_of_paceline_s_own_is_trusted_with_its_ca_file(
    tmp_path_factory: pytest.TempPathFactory, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with serving(tmp_path_factory.mktemp("tls"), tls_self_signed=True) as world:
        world.add("root", "admin")
        monkeypatch.setenv("PACELINE_URL", f"https://127.0.0.1:{world.port}")
        monkeypatch.setenv("PACELINE_TOKEN", world.tokens["root"])
        assert main(["user", "list"]) == 1
        assert "name its CA file: --ca-file FILE, or PACELINE_CA_FILE. (untrusted)" in capsys.readouterr().err
        assert world.system.tls is not None
        monkeypatch.setenv("PACELINE_CA_FILE", str(world.system.tls.authority))
        assert main(["user", "list"]) == 0


def test_connection_closed_before_the_answer_is_reported_as_possibly_done(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    del folder
    with socket.create_server(("127.0.0.1", 0)) as server:
        script = "import socket,sys\ns=socket.socket(fileno=int(sys.argv[1]))\nwhile True: s.accept()[0].close()"
        server.set_inheritable(True)
        with subprocess.Popen(
            [sys.executable, "-c", script, str(server.fileno())], pass_fds=[server.fileno()]
        ) as silent:
            monkeypatch.setenv("PACELINE_URL", f"http://127.0.0.1:{server.getsockname()[1]}")
            monkeypatch.setenv("PACELINE_TOKEN", TOKEN)
            assert main(["user", "add", "carol"]) == 1
            assert "the change may have been made. Look, then try again. (unreachable)" in capsys.readouterr().err
            silent.kill()


def test_help_imports_no_http_client() -> None:
    script = "import sys; from paceline.shells.cli.app import main; main(['--help']); print('httpx' in sys.modules)"
    told = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
    assert told.splitlines()[-1] == "False"
