"""Fields that scripts ask for: on one measurement and in lists, probes, the newest results by their old address."""

from __future__ import annotations

from typing import Any

from paceline.adapters.sqlite.store import SqliteStore
from tests.shells.ripe_api.conftest import PING, House
from tests.shells.ripe_api.support.stage import eventually


def test_measurement_has_only_the_requested_fields(house: House) -> None:
    [number] = house.ann.create()
    found = house.ann("GET", f"/measurements/{number}/?fields=id,status&defeatcaching=dc1").json
    assert set(found) == {"id", "status"}
    assert set(house.ann("GET", f"/measurements/{number}/?fields=probes,status").json) == {"probes", "status"}
    assert "probes" not in house.ann("GET", f"/measurements/{number}/").json
    assert "description" in house.ann("GET", f"/measurements/{number}/?optional_fields=probes").json


def test_measurement_has_no_probes_before_it_is_sent_and_then_ripes(house: House) -> None:
    [number] = house.ann.create()
    assert house.ann("GET", f"/measurements/{number}/?fields=probes").json == {"probes": []}
    house.send()
    probes = eventually(lambda: house.ann("GET", f"/measurements/{number}/?fields=probes").json["probes"])
    assert len(probes) == 3
    assert probes[0]["url"].endswith(f"/api/v2/probes/{probes[0]['id']}/")
    listed = house.ann("GET", f"/measurements/my/?id__in={number}&fields=id,probes").json["results"]
    assert listed == [{"id": number, "probes": probes}]
    [shown] = house.ann("GET", "/measurements/?optional_fields=probes&page_size=10").json["results"]
    assert shown["probes"] == probes


def test_page_of_too_many_measurements_with_probes_is_refused(house: House) -> None:
    refused = house.ann("GET", "/measurements/?optional_fields=probes&page_size=500")
    assert refused.status == 400
    assert refused.json["error"]["errors"][0]["source"] == {"parameter": "page_size"}


def test_participant_count_is_known_once_ripe_has_started_the_measurement(house: House) -> None:
    [number] = house.ann.create()

    def counts() -> Any:
        found = house.ann("GET", f"/measurements/{number}/").json
        return found["probes_scheduled"], found["participant_count"], found["is_all_scheduled"]

    assert counts() == (0, None, False)
    house.send()

    def begun() -> bool:
        house.follow()
        return bool(counts() == (3, 3, True))

    eventually(begun)


def test_newest_results_are_at_their_old_address_too(house: House) -> None:
    [number] = house.ann.create()
    house.send()
    eventually(lambda: house.has_ended(number))
    newest = house.ann("GET", f"/measurements-latest/{number}/?versions=1")
    assert newest.status == 200
    assert len(newest.json) == 3
    assert {one["msm_id"] for one in newest.json} == {number}
    assert house.bob("GET", f"/measurements-latest/{number}/").status == 404


def test_status_is_ongoing_as_long_as_ripe_says_so_although_all_results_are_there(house: House) -> None:
    """blaeu stops with an error at a one-off that was never shown as ongoing."""
    store = house.world.system.store
    [number] = house.ann.create()
    house.send()

    def ended_here() -> bool:
        house.follow()
        return bool(store.measurements_of("ann", states=("done",), before=None, limit=1))

    eventually(ended_here)
    [stored] = store.measurements_of("ann", states=("done",), before=None, limit=1)
    assert house.ann.status(number) == ("Ongoing" if stored.running else "Stopped")
    eventually(lambda: house.has_ended(number))


def test_thousands_of_jobs_later_ids_are_still_below_2_to_the_31(house: House) -> None:
    [first] = house.ann.create()
    _write(house, "UPDATE sqlite_sequence SET seq = ? WHERE name = 'job'", 2_000_000)
    [later] = house.ann.create()
    assert first < later < 2**31
    assert house.ann("GET", f"/measurements/{later}/").json["id"] == later


def test_ids_of_before_definitions_were_numbered_stay_readable(house: House) -> None:
    first, second = house.ann.create(PING, PING | {"description": "two"})
    _write(house, "UPDATE job SET numbered = NULL, stride = 0 WHERE id > ?", 0)
    [newer] = house.ann.create()
    assert house.ann("GET", f"/measurements/{first}/").status == 404
    older = 1 << 21
    assert house.ann("GET", f"/measurements/{older}/").json["group_id"] == older
    assert house.ann("GET", f"/measurements/{older + 1}/").json["description"] == "two"
    listed = house.ann("GET", "/measurements/my/").json["results"]
    assert [one["id"] for one in listed] == [newer, older + 1, older]
    assert newer > second


def _write(house: House, statement: str, value: int) -> None:
    """Through the process's own connection: another library's would take its locks away."""
    store = house.world.system.store
    assert isinstance(store, SqliteStore)
    with store._db.write() as db:
        db.execute(statement, (value,))
