"""The dashboard on the AWS engine: what open pages cost there."""

from __future__ import annotations

from pathlib import Path

import pytest

from paceline.adapters.aws.store import AwsStore
from tests.aws.support.ministack import Emulator
from tests.shells.api.conftest import serving
from tests.shells.dashboard.support.polling import BYTES_MAX, PAGES, fail_checks, fill, polled_bytes
from tests.shells.support.daemons import SECRET

pytestmark = pytest.mark.aws
MONITORS, PROVIDERS = 1_100, 60
"""More than a list looks at in one go. More make no page larger: each shows fifty rows."""


def test_pages_are_polled_as_cheaply_on_aws_as_on_a_file(
    aws: Emulator, aws_store: AwsStore, prefix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    del aws_store  # its tables are there
    for name, value in aws.environment.items():
        monkeypatch.setenv(name, value)
    with serving(tmp_path, store=f"aws://?prefix={prefix}", secret_key=SECRET) as world:
        root = world.add("root", "admin")
        fill(root, monitors=MONITORS, providers=PROVIDERS)
        fail_checks(world, root, count=60)
        for path in PAGES:
            assert polled_bytes(root, path, changes=True) < BYTES_MAX, path
        for path, mark in (
            ("/ui/monitors", "data-pick="),
            ("/ui/providers", 'class="name cut" href="/ui/providers?id='),
        ):
            assert root("GET", path).body.decode().count(mark) == 50, path
