"""The package of `make functions`, alone and deployed: from REST over streams and queues to the outcome."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
import zlib
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.aws.support.deployment import TEMPLATE, Deployment, deployed, wait
from tests.aws.support.lambda_scene import EMULATOR
from tests.aws.support.lambda_stage import Target
from tests.aws.support.package import PYTHON, SCRIPT, package, zipped

pytestmark = [pytest.mark.aws, pytest.mark.slow]
MB = 2**20
IMPORT_ALL = """
import importlib, pkgutil, sys
sys.path.insert(0, sys.argv[1])
import paceline
left_out = (
    "paceline.__main__",
    "paceline.shells.daemon.daemon",
    "paceline.shells.api.http.serving",
    "paceline.shells.demo",
)
for found in pkgutil.walk_packages(paceline.__path__, "paceline."):
    if found.name not in left_out:
        importlib.import_module(found.name)
import boto3
for service in ("dynamodb", "sqs", "stepfunctions", "secretsmanager"):
    boto3.session.Session(region_name="us-east-1").client(service)
print("all")
"""


def test_package_imports_on_a_bare_python_and_fits_the_size_limits_of_lambda() -> None:
    folder = package()
    python = Path(sys.base_prefix) / "bin" / f"python{PYTHON}"
    done = subprocess.run(
        [python, "-I", "-S", "-c", IMPORT_ALL, folder], capture_output=True, text=True, timeout=120, check=False
    )
    assert (done.returncode, done.stdout) == (0, "all\n"), done.stderr
    files = [file.read_bytes() for file in folder.rglob("*") if file.is_file()]
    assert sum(map(len, files)) < 250 * MB
    assert sum(len(zlib.compress(file, 1)) for file in files) < 50 * MB, "what may be uploaded without a bucket"


def test_package_is_compiled_for_its_python_and_needs_no_dates() -> None:
    folder = package()
    tag = f"cpython-{PYTHON.replace('.', '')}"
    modules = [file for file in (folder / "paceline").rglob("*.py") if "__pycache__" not in file.parts]
    assert len(modules) > 300
    for module in modules:
        compiled = (module.parent / "__pycache__" / f"{module.stem}.{tag}.pyc").read_bytes()
        flags = int.from_bytes(compiled[4:8], "little")
        # Bit 0: by hash of the source instead of its date. Bit 1 would let Python read the source at each import.
        assert flags == 0b01, module
        assert compiled[:4] == importlib.util.MAGIC_NUMBER, module
        assert compiled[8:16] == importlib.util.source_hash(module.read_bytes()), module
    (others,) = {
        len(list((folder / name).rglob("*.pyc"))) > 0 for name in ("boto3", "botocore", "msgspec", "starlette")
    }
    assert others


def test_build_of_functions_says_what_to_do_if_their_python_is_missing() -> None:
    done = subprocess.run([sys.executable, SCRIPT, "--python=3.99"], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "There is no Python 3.99 here to compile the package with." in done.stderr
    assert "--uncompiled" in done.stderr


def test_package_is_built_for_the_python_and_into_the_folder_of_the_template() -> None:
    deployed_with, built_by = TEMPLATE.read_text(), SCRIPT.read_text()
    runtime = re.search(r"Runtime: python(\S+)\n\s+CodeUri: build\n", deployed_with)
    assert runtime is not None
    assert f'"--python", default="{runtime[1]}"' in built_by
    assert '"--into", type=Path, default=ROOT / "deploy" / "aws" / "build"' in built_by


@pytest.fixture
def deployment() -> Iterator[Deployment]:
    with deployed(app=EMULATOR, code=zipped(package())) as made:
        made.reschedule({})
        yield made


def test_deployed_functions_check_a_monitor_that_was_put_over_rest(deployment: Deployment) -> None:
    path = "/v1/users/me/monitors/home"
    with closing(Target()) as target:
        spec = {"check": {"kind": "http", "url": f"{target.url}/home"}, "every": "1s"}
        deployment.ask(201, "PUT", path, spec)
        wait(lambda: len(target.asked) >= 3, within_s=120)
        page = deployment.ask(200, "GET", f"{path}/runs")
        assert sum(run["state"] == "ok" for run in page["items"]) >= 2
        deployment.ask(204, "DELETE", path)
        asked = len(target.asked)
        wait(lambda: set(deployment.depths("ticks", "runs.fifo", delayed=True).values()) == {0}, within_s=60)
        assert len(target.asked) <= asked + 1, "one may have been out when it was deleted"
