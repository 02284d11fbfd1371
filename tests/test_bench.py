"""Benchmarks that nothing else runs: they must still work when somebody wants a figure."""

from __future__ import annotations

import http.client
import importlib
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from bench.__main__ import BENCHES
from bench.rest import CHECK, FLOOR_PATH, server

ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize("name", BENCHES)
def test_benchmark_can_be_imported(name: str) -> None:
    assert callable(importlib.import_module(f"bench.{name}").run)


def test_benchmark_prints_one_json_object_with_its_rows() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "bench", "submit", "--json"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    report = json.loads(done.stdout)
    assert report["bench"] == "submit"
    for row in report["results"]:
        assert row.keys() >= {"subject", "size", "per_s", "ratio_to_floor"}


def test_floor_of_the_rest_benchmark_answers_as_the_api_does(tmp_path: Path) -> None:
    with server(tmp_path) as (port, token):
        real = put(port, token, "/v1/users/{user}/monitors/{id}")
        floor = put(port, token, FLOOR_PATH)
    assert real.keys() == floor.keys()
    assert real["check"] == floor["check"]


def put(port: int, token: str, path: str) -> dict[str, Any]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    try:
        body = json.dumps({"check": CHECK, "every": "60s"})
        connection.request("PUT", path.format(user="bench", id="one"), body, {"Authorization": f"Bearer {token}"})
        reply = connection.getresponse()
        answer: dict[str, Any] = json.loads(reply.read())
    finally:
        connection.close()
    assert reply.status in (200, 201), answer
    return answer
