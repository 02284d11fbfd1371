"""The RIPE Atlas client tries keys on the simulator's real server."""

from __future__ import annotations

import pytest

from paceline.adapters.providers.ripe_atlas import RipeAtlas
from paceline.core.jobs.atlas import Lost, Refused
from paceline.core.jobs.atlas_replies import KeyCheck
from paceline.simulators.ripe_atlas import AtlasSimulator, Fault, SimulatorModel
from tests.adapters.providers.support.atlas_stage import READS

POOL = ("measurements.create_measurement", "measurements.stop_measurement")


def test_a_key_with_all_it_needs_has_no_problem(atlas: RipeAtlas, key: str) -> None:
    assert atlas.check_key(key) == KeyCheck((), unverified=("download results of non-public measurements",))


@pytest.mark.parametrize(
    ("grants", "missing"),
    [
        ((*POOL, READS[0]), ["get information about your credits"]),
        ((*POOL, READS[1]), ["list your measurements"]),
        (POOL, ["get information about your credits", "list your measurements"]),
        ((*READS, "keys.list_keys"), ["schedule a new measurement", "stop a measurement"]),
        ((*READS, *POOL, "keys.list_keys"), []),
    ],
)
def test_a_key_check_names_the_permission_that_is_missing(
    simulator: AtlasSimulator, atlas: RipeAtlas, grants: tuple[str, ...], missing: list[str]
) -> None:
    simulator.add_account("lab")
    checked = atlas.check_key(simulator.add_key("lab", grants=grants).uuid)
    assert isinstance(checked, KeyCheck), checked
    assert len(checked.problems) == len(missing)
    assert all(word in problem for word, problem in zip(missing, checked.problems, strict=True))


@pytest.mark.parametrize("status", [401, 403])
def test_a_key_that_ripe_does_not_know_is_one_problem_in_ripes_words(status: int) -> None:
    with AtlasSimulator(SimulatorModel(unknown_key_status=status)) as simulator:
        atlas = RipeAtlas(simulator.base_url)
        checked = atlas.check_key("no-such-key")
        atlas.close()
    assert isinstance(checked, KeyCheck), checked
    assert len(checked.problems) == 1
    assert checked.words == ("The provided API key does not exist",)


def test_a_key_is_not_judged_while_ripe_is_unwell(simulator: AtlasSimulator, atlas: RipeAtlas, key: str) -> None:
    simulator.add_fault(Fault(kind="rate_limit", path="/credits", retry_after_s=9))
    answer = atlas.check_key(key)
    assert isinstance(answer, Refused), answer
    assert (answer.scope, answer.retry_after_ms) == ("global", 9_000)
    simulator.add_fault(Fault(kind="error_before", path="/my"))
    assert isinstance(atlas.check_key(key), Lost)
    simulator.add_fault(Fault(kind="error_before", path="/keys"))
    assert atlas.check_key(key) == KeyCheck((), unverified=("download results of non-public measurements",))
