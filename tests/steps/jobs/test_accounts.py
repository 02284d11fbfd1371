"""A key is checked at RIPE before it is stored, and the error names what it lacks. Uses the simulator's server."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from paceline.adapters.providers.ripe_atlas import RipeAtlas
from paceline.adapters.vault import SecretVault
from paceline.errors import AlreadyExists, AtlasUnavailable, InvalidInput, NotFound, WrongSetting
from paceline.ports import Store
from paceline.simulators.ripe_atlas import POOL_PERMISSIONS, AtlasSimulator, Fault, SimulatorClock
from paceline.simulators.ripe_atlas.accounts import CREATE, CREDITS, LIST, LIST_KEYS, STOP
from paceline.steps.jobs import accounts
from tests.contract.support.stage import T0_MS
from tests.steps.support.stored_keys import open_key

VAULT = SecretVault(b"a secret key of enough bytes")
READS = (CREDITS, LIST)
POOL = (CREATE, STOP)


@pytest.fixture
def simulator() -> Iterator[AtlasSimulator]:
    with AtlasSimulator(clock=SimulatorClock(start_ms=T0_MS, speed=0)) as running:
        running.add_account("theirs", keys=0)
        yield running


@pytest.fixture
def atlas(simulator: AtlasSimulator) -> Iterator[RipeAtlas]:
    opened = RipeAtlas(simulator.base_url)
    yield opened
    opened.close()


@pytest.fixture(autouse=True)
def lab(store: Store) -> None:
    accounts.put_account(store, "lab", b"{}")


def test_key_with_all_permissions_is_tried_and_stored(
    store: Store, simulator: AtlasSimulator, atlas: RipeAtlas
) -> None:
    secret = simulator.add_key("theirs").uuid
    key, unverified = accounts.check_and_add_key(store, VAULT, atlas, "lab", secret, label="one", now_ms=T0_MS)
    assert unverified == ("download results of non-public measurements",), "it may not list keys, so RIPE does not say"
    assert (key.label, key.last_four, key.enabled) == ("one", secret[-4:], True)
    assert len(simulator.latest) == 5
    assert simulator.audit()["measurements"] == [], "what was tried had no effect"
    with pytest.raises(AlreadyExists):
        accounts.check_and_add_key(store, VAULT, atlas, "lab", secret, now_ms=T0_MS)


@pytest.mark.parametrize(
    ("grants", "lacks"),
    [
        (POOL, ["get information about your credits", "list your measurements"]),
        ((*POOL, "credits.get_credit_info"), ["list your measurements"]),
        ((*POOL, "measurements.list_measurements"), ["get information about your credits"]),
        ((*READS, STOP), ["schedule a new measurement"]),
        ((*READS, CREATE), ["stop a measurement"]),
        ((*READS, LIST_KEYS), ["schedule a new measurement", "stop a measurement"]),
    ],
)
def test_key_is_refused_with_the_name_of_each_missing_permission(
    store: Store, simulator: AtlasSimulator, atlas: RipeAtlas, grants: tuple[str, ...], lacks: list[str]
) -> None:
    secret = simulator.add_key("theirs", grants=grants).uuid
    with pytest.raises(InvalidInput) as refused:
        accounts.check_and_add_key(store, VAULT, atlas, "lab", secret, now_ms=T0_MS)
    problems = refused.value.errors
    assert [problem.pointer for problem in problems] == ["/key"] * len(lacks)
    for problem, word in zip(problems, lacks, strict=True):
        assert word in problem.detail
    assert "RIPE says" in problems[-1].detail or "credits.get_credit_info" in grants
    assert secret not in str(refused.value)
    assert store.keys("lab") == []


@pytest.mark.parametrize("kind", ["rate_limit", "error_before", "maintenance", "drop_before"])
def test_key_that_ripe_could_not_check_is_not_stored_and_the_error_names_no_check(
    store: Store, simulator: AtlasSimulator, atlas: RipeAtlas, kind: str
) -> None:
    secret = simulator.add_key("theirs").uuid
    simulator.add_fault(Fault(kind=kind, times=None, retry_after_s=7 if kind == "rate_limit" else None))  # type: ignore[arg-type]
    with pytest.raises(AtlasUnavailable) as unanswered:
        accounts.check_and_add_key(store, VAULT, atlas, "lab", secret, now_ms=T0_MS)
    assert "--no-check" in unanswered.value.detail
    assert unanswered.value.retry_after_s == (7 if kind == "rate_limit" else None)
    assert store.keys("lab") == []
    assert accounts.check_and_add_key(store, VAULT, None, "lab", secret, now_ms=T0_MS).unverified is None


def test_ripe_is_not_asked_for_an_account_that_is_not_there(
    store: Store, simulator: AtlasSimulator, atlas: RipeAtlas
) -> None:
    with pytest.raises(NotFound):
        accounts.check_and_add_key(store, VAULT, atlas, "other", "some-key-0000", now_ms=T0_MS)
    with pytest.raises(InvalidInput):
        accounts.check_and_add_key(store, VAULT, atlas, "lab", "short", now_ms=T0_MS)
    assert len(simulator.latest) == 0


def test_a_key_sealed_with_another_secret_says_what_to_do(store: Store) -> None:
    key = accounts.add_key(store, VAULT, "lab", "some-key-0000", now_ms=T0_MS)
    with pytest.raises(WrongSetting, match="remove the account's keys and add them again"):
        open_key(store, SecretVault(b"quite another secret key"), "lab", key.id)


def test_key_with_listed_permissions_is_verified_completely(
    store: Store, simulator: AtlasSimulator, atlas: RipeAtlas
) -> None:
    secret = simulator.add_key("theirs", grants=(*POOL_PERMISSIONS, LIST_KEYS)).uuid
    assert accounts.check_and_add_key(store, VAULT, atlas, "lab", secret, now_ms=T0_MS).unverified == ()
    public = simulator.add_key("theirs", grants=(*READS, CREATE, STOP, LIST_KEYS)).uuid
    [unverified] = accounts.check_and_add_key(store, VAULT, atlas, "lab", public, now_ms=T0_MS).unverified or ()
    assert unverified.startswith("download results of non-public measurements")


def test_a_key_belongs_to_one_account(store: Store) -> None:
    accounts.put_account(store, "other", b"{}")
    accounts.add_key(store, VAULT, "lab", "some-key-0000", now_ms=T0_MS)
    with pytest.raises(AlreadyExists, match="Account 'lab' has this key already: k1"):
        accounts.add_key(store, VAULT, "other", "some-key-0000", now_ms=T0_MS)
    accounts.remove_key(store, "lab", "k1")
    assert accounts.add_key(store, VAULT, "other", "some-key-0000", now_ms=T0_MS).account == "other"
