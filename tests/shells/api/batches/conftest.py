"""An admin with two providers and a batch."""

from __future__ import annotations

import pytest

from tests.shells.api.conftest import Client
from tests.shells.api.support.day import PROVIDER


@pytest.fixture
def daily(admin: Client) -> Client:
    """An admin who has the providers a and b, and the batch daily."""
    for name in ("a", "b"):
        assert admin("PUT", f"/v1/providers/{name}", PROVIDER).status == 201
    assert admin("PUT", "/v1/batches/daily", {}).status == 201
    return admin
