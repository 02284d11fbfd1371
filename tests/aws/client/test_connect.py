"""Connections from boto3's own configuration, errors that say what to do next, and a thread pool without deadlocks."""

from __future__ import annotations

import os
import sys
import threading
import time
from contextlib import closing

import pytest

from paceline.adapters.aws.client import connect
from paceline.adapters.aws.client.connect import Threads
from paceline.adapters.aws.store import AwsStore
from paceline.config import aws_prefix, load_settings
from paceline.errors import StoreUnavailable, WrongSecretKey, WrongSetting
from paceline.shells.aws_lambda.runtime import engine
from paceline.wiring import open_system
from tests.aws.support.fault_proxy import Faults, fault_proxy
from tests.aws.support.lambda_stage import lambda_stage
from tests.aws.support.ministack import (
    Emulator,
    environment,
    fresh_prefix,
    guarded_clients,
    make_tables,
    shared_clients,
)
from tests.shells.support.daemons import free_port


@pytest.fixture
def nowhere(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """An environment in which boto3 finds nothing."""
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    for name, value in environment("http://127.0.0.1:1").items():
        if name in {"AWS_EC2_METADATA_DISABLED", "AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"}:
            monkeypatch.setenv(name, value)
    return monkeypatch


def test_error_about_a_missing_region_names_the_variable(nowhere: pytest.MonkeyPatch) -> None:
    del nowhere
    with pytest.raises(StoreUnavailable, match="AWS_REGION"):
        AwsStore("paceline")


def test_error_about_missing_credentials_names_their_sources(nowhere: pytest.MonkeyPatch) -> None:
    nowhere.setenv("AWS_REGION", "us-east-1")
    nowhere.setenv("AWS_DEFAULT_REGION", "us-east-1")
    with closing(AwsStore("paceline")) as store, pytest.raises(StoreUnavailable, match="AWS_PROFILE"):
        store.ping()


def test_endpoint_without_a_listener_is_store_unavailable(nowhere: pytest.MonkeyPatch) -> None:
    for name, value in environment(f"http://127.0.0.1:{free_port()}").items():
        nowhere.setenv(name, value)
    nowhere.setattr(connect, "BACKOFF_CAP_S", 0.01)
    with closing(AwsStore("paceline")) as store, pytest.raises(StoreUnavailable, match="AWS_ENDPOINT_URL"):
        store.ping()


def test_error_about_missing_tables_names_the_command_that_creates_them(clients: connect.Clients) -> None:
    with closing(AwsStore(fresh_prefix(), clients=clients)) as store:
        with pytest.raises(StoreUnavailable, match="paceline aws init"):
            store.ping()
        with pytest.raises(StoreUnavailable, match="paceline aws init"):
            store._queues.url("ticks")


def test_endless_throttling_is_store_unavailable(aws: Emulator, prefix: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connect, "BACKOFF_CAP_S", 0.01)
    with fault_proxy(aws.url, faults=Faults(throttle=1.0)) as proxy, guarded_clients(proxy.url) as slow:
        with closing(AwsStore(prefix, clients=slow)) as store, pytest.raises(StoreUnavailable, match="throttles"):
            store.ping()
        assert proxy.requests["UpdateItem"] == connect.ATTEMPTS_MAX


def test_fan_out_returns_results_in_order_and_keeps_to_its_limit(threads: Threads) -> None:
    lock = threading.Lock()
    out = highest = 0

    def work(number: int) -> int:
        nonlocal out, highest
        with lock:
            out += 1
            highest = max(highest, out)
        time.sleep(0.002)
        with lock:
            out -= 1
        return number * 2

    assert threads.fan_out(work, range(40)) == [number * 2 for number in range(40)]
    assert 2 <= highest <= 4


def test_fan_out_runs_every_item_before_it_raises_the_first_error(threads: Threads) -> None:
    tried: list[int] = []

    def work(number: int) -> None:
        tried.append(number)
        if number % 2:
            raise ValueError(number)

    with pytest.raises(ValueError, match="1"):
        threads.fan_out(work, range(6))
    assert sorted(tried) == list(range(6))


def test_nested_fan_out_does_not_deadlock(threads: Threads) -> None:
    inner = threads.fan_out(lambda one: threads.fan_out(lambda two: one * two, range(3)), range(8))
    assert inner == [[one * two for two in range(3)] for one in range(8)]


def test_settings_accept_an_aws_store_and_refuse_an_invalid_address() -> None:
    assert aws_prefix(load_settings(store="aws://?prefix=my-team-2").store) == "my-team-2"
    assert aws_prefix(load_settings(store="sqlite:///x.db").store) is None
    for wrong in ("aws://", "aws://?prefix=", "aws://?prefix=Big", "aws://?prefix=a&region=x", "aws://here?prefix=a"):
        with pytest.raises(WrongSetting, match="PACELINE_STORE"):
            load_settings(store=wrong)


def test_error_about_the_missing_extra_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "boto3", None)  # as if it were not there
    monkeypatch.delitem(sys.modules, "paceline.adapters.aws.store")
    monkeypatch.delitem(sys.modules, "paceline.adapters.aws.client.connect")
    monkeypatch.delattr("paceline.adapters.aws.client.connect")
    with pytest.raises(WrongSetting, match="Install Paceline with its extra aws"):
        open_system(load_settings(store="aws://?prefix=paceline"))


def test_store_on_aws_without_a_secret_key_setting_is_refused(aws: Emulator, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in aws.environment.items():
        monkeypatch.setenv(name, value)
    system = open_system(load_settings(store=f"aws://?prefix={fresh_prefix()}"))
    with closing(system.store), pytest.raises(WrongSetting, match="PACELINE_SECRET_KEY"):
        _ = system.secret_key
    prefix = fresh_prefix()
    make_tables(shared_clients(), prefix)
    given = load_settings(store=f"aws://?prefix={prefix}", secret_key="0123456789abcdef")
    system = open_system(given)
    with closing(system.store):
        assert len(system.secret_key) == 32


def test_functions_with_another_secret_key_do_not_start() -> None:
    with lambda_stage() as stage, pytest.MonkeyPatch.context() as patch:
        assert stage.rest("GET", "/v1/users")[0] == 200
        engine.cache_clear()
        patch.setenv("PACELINE_SECRET_KEY", "another secret, mistyped somewhere")
        with pytest.raises(WrongSecretKey, match="PACELINE_SECRET_KEY"):
            engine()
