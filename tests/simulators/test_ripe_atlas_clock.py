"""The clock of the simulated RIPE Atlas, and that the same script gives the same history."""

from __future__ import annotations

import time

from paceline.simulators.ripe_atlas import AtlasSimulator, SimulatorClock, SimulatorModel
from tests.simulators.support.atlas_client import MINUTE_MS, START_MS, Client, definition_of

ALL_TYPES = ("ping", "traceroute", "dns", "sslcert", "ntp", "http")


def test_the_clock_can_be_driven_from_outside(client: Client) -> None:
    assert client.get("/simulator/clock") == {"now": "2026-05-28T20:26:40.000Z", "now_ms": START_MS, "speed": 0}
    assert client.ask("POST", "/simulator/clock", {"advance": "10m"}).document["now_ms"] == START_MS + 10 * MINUTE_MS
    for wrong in ({"advance": "soon"}, {"speed": -1}, {"backwards": 1}, {"advance": "-5m"}):
        assert client.ask("POST", "/simulator/clock", wrong).status == 400
    assert client.get("/simulator/clock")["now_ms"] == START_MS + 10 * MINUTE_MS


def test_a_fast_clock_brings_a_one_off_to_its_end_in_a_second() -> None:
    with AtlasSimulator(SimulatorModel(index_lag_ms=0), clock=SimulatorClock(speed=1_000)) as simulator:
        client = Client(simulator.base_url, simulator.add_account("alice")[0])
        (created,) = client.create().ids
        deadline = time.monotonic() + 10
        while client.status(created) != 4:
            assert time.monotonic() < deadline
            time.sleep(0.02)
        assert client.get(f"/measurements/{created}/results/")


def test_the_clock_can_follow_that_of_a_simulation() -> None:
    now_ms = [START_MS]
    clock = SimulatorClock(source=lambda: now_ms[0])
    assert clock.now_ms() == START_MS
    now_ms[0] += 5_000
    assert clock.now_ms() == START_MS + 5_000
    clock.advance(1_000)
    clock.set_speed(2)
    now_ms[0] += 1_000
    assert clock.now_ms() == START_MS + 8_000


def history(seed: int) -> str:
    clock = SimulatorClock(start_ms=START_MS, speed=0)
    with AtlasSimulator(SimulatorModel(seed=seed), clock=clock) as simulator:
        client = Client(simulator.base_url, simulator.add_account("alice")[0])
        client.ask("POST", "/simulator/faults", {"kind": "error_after", "chance": 0.5, "times": None})
        said = [client.create(definition_of(type_), requested=20).body.decode() for type_ in ALL_TYPES]
        clock.advance(10 * MINUTE_MS)
        client.ask("DELETE", "/simulator/faults")
        said += [client.ask("GET", f"/measurements/{1_000_001 + n}/results/").body.decode() for n in range(3)]
        audit = client.ask("GET", "/simulator/audit").body.decode()
        return "\n".join([*said, audit]).replace(str(simulator.port), "PORT")


def test_the_same_seed_and_script_give_the_same_history() -> None:
    assert history(7) == history(7)
    assert history(7) != history(8)


def test_unknown_paths_are_not_found_and_wrong_methods_are_refused(client: Client) -> None:
    assert client.ask("GET", "/anchors/").status == 404
    assert client.ask("PUT", "/measurements/").status == 405
    assert client.ask("GET", "/measurements/7/").status == 404
    assert client.ask("GET", "/simulator/nothing").status == 404
