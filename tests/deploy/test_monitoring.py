"""Rules for Prometheus and the dashboard for Grafana: they parse, ask for what exists, and fire when they should."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]
MONITORING = ROOT / "deploy" / "monitoring"
RULES: list[dict[str, Any]] = yaml.safe_load((MONITORING / "alerts.yaml").read_text())["groups"][0]["rules"]
BOARD: dict[str, Any] = json.loads((MONITORING / "grafana.json").read_text())
TESTS: list[dict[str, Any]] = yaml.safe_load((ROOT / "tests/deploy/alerts.test.yaml").read_text())["tests"]
EXPRESSIONS = {
    "alerts.yaml": [rule["expr"] for rule in RULES],
    "grafana.json": [target["expr"] for panel in BOARD["panels"] for target in panel["targets"]],
}
METRIC = re.compile(r"\bpaceline_\w+?(?=_bucket\b|\b)")
LABELS = re.compile(r"(?:by|ignoring|on) \(([\w, ]+)\)|(\w+)(?==~?\"|!=\")")

needs_promtool = pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not installed")


def documented() -> dict[str, set[str]]:
    """The labels of each metric, from the reference."""
    text = (ROOT / "docs/reference/metrics.md").read_text()
    rows = re.findall(r"^\| `(paceline_\w+)` \| \w+ \| ([^|]*)\|", text, re.MULTILINE)
    return {name: {*re.findall(r"`(\w+)`", labels), "le"} for name, labels in rows}


def promtool(*words: str, folder: Path) -> None:
    done = subprocess.run(["promtool", *words], cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("file", ["alerts.yaml", "grafana.json"])
def test_rules_and_panels_ask_for_metrics_and_labels_that_exist(file: str) -> None:
    assert EXPRESSIONS[file]
    for expression in EXPRESSIONS[file]:
        metrics = set(METRIC.findall(expression))
        assert metrics
        assert metrics - documented().keys() == set(), expression
        asked = {name.strip() for found in LABELS.findall(expression) for name in "".join(found).split(",")}
        assert asked - {label for name in metrics for label in documented()[name]} == set(), expression


@needs_promtool
def test_promtool_accepts_the_alert_rules_and_the_questions_of_every_panel(tmp_path: Path) -> None:
    promtool("check", "rules", str(MONITORING / "alerts.yaml"), folder=ROOT)
    rules = [{"record": f"panel:{n}", "expr": expression} for n, expression in enumerate(EXPRESSIONS["grafana.json"])]
    (tmp_path / "panels.yaml").write_text(yaml.safe_dump({"groups": [{"name": "panels", "rules": rules}]}))
    promtool("check", "rules", "panels.yaml", folder=tmp_path)


@needs_promtool
def test_alerts_fire_when_they_should_and_are_silent_when_all_is_well(tmp_path: Path) -> None:
    for file in (MONITORING / "alerts.yaml", ROOT / "tests/deploy/alerts.test.yaml"):
        shutil.copy(file, tmp_path)
    promtool("test", "rules", "alerts.test.yaml", folder=tmp_path)


@pytest.mark.parametrize("fires", [True, False])
def test_every_alert_has_a_case_where_it_fires_and_one_where_it_does_not(fires: bool) -> None:  # noqa: FBT001  a parameter of the test
    cases = [case for test in TESTS for case in test["alert_rule_test"]]
    tried = {case["alertname"] for case in cases if bool(case["exp_alerts"]) is fires}
    assert tried == {rule["alert"] for rule in RULES}


def test_every_alert_says_what_to_do() -> None:
    for rule in RULES:
        assert rule["annotations"].keys() == {"summary", "action"}, rule["alert"]
        assert rule["labels"]["severity"] in ("warning", "critical")


def test_panels_have_a_place_and_a_number_of_their_own() -> None:
    panels = BOARD["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    taken = [
        (x, y)
        for place in (panel["gridPos"] for panel in panels)
        for x in range(place["x"], place["x"] + place["w"])
        for y in range(place["y"], place["y"] + place["h"])
    ]
    assert len(set(taken)) == len(taken)
    assert all(x < 24 for x, _ in taken)
