"""Files of definitions applied to a store, and written from one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from paceline.config import Settings
from paceline.core.users import User
from paceline.errors import InvalidInput, PacelineError
from paceline.shells.cli.as_code.apply import ApplyReport, Terms, apply_to
from paceline.shells.cli.as_code.export import text_of
from paceline.shells.cli.as_code.sides import StoreSide
from paceline.shells.cli.as_code.yaml_file import dump
from paceline.wiring import System, open_system

CANARY = "canary-7f3a9c-secret"


class Stage:
    """A store with two users, and a folder for files."""

    def __init__(self, folder: Path, name: str = "a") -> None:
        self.folder = folder
        given: dict[str, Any] = {"store": f"sqlite:///{folder}/{name}.db", "secret_key": "the key of this test"}
        self.system: System = open_system(Settings(**given))
        for user in ("ann", "bob"):
            made = User(user, "user", 0, disabled=False, created_ms=self.system.clock.now_ms())
            self.system.store.add_user(made)
        self.side = StoreSide(self.system)

    def apply(self, document: dict[str, Any] | str, **terms: Any) -> ApplyReport:
        file = self.folder / "definitions.yaml"
        file.write_text(document if isinstance(document, str) else dump(document))
        return apply_to(self.side, Terms([file], **terms), lambda: "ann")


@contextmanager
def stages(count: int = 1) -> Iterator[list[Stage]]:
    with TemporaryDirectory() as folder:
        opened = [Stage(Path(folder), f"s{number}") for number in range(count)]
        try:
            yield opened
        finally:
            for stage in opened:
                stage.system.store.close()


@pytest.fixture
def stage() -> Iterator[Stage]:
    with stages() as (one,):
        yield one


def counts(report: ApplyReport) -> dict[str, int]:
    words = ("created", "changed", "unchanged", "removed", "refused", "left")
    return {word: count for word in words if (count := getattr(report, word))}


HTTP = {"kind": "http", "url": "https://example.org/"}
WHOLE: dict[str, Any] = {
    "providers": {"shop": {"base_url": "https://shop.example", "headers": {"X-Key": CANARY}}},
    "batches": {"daily": {"start": "02:00"}},
    "users": {
        "ann": {
            "channels": {"ops": {"kind": "webhook", "url": f"https://hooks.example/{CANARY}"}},
            "monitors": {
                "api": {
                    "check": {**HTTP, "auth": {"kind": "bearer", "token": CANARY}},
                    "every": "60s",
                    "alert": {"channels": ["ops"]},
                }
            },
        },
        "bob": {"monitors": {"home": {"check": HTTP, "every": "30s"}}},
    },
}


def test_file_is_applied_once_and_the_second_time_nothing_changes(stage: Stage) -> None:
    assert counts(stage.apply(WHOLE, dry_run=True)) == {"created": 5}
    assert counts(stage.apply(WHOLE)) == {"created": 5}
    before = [stage.system.store.monitor(owner, name) for owner, name in (("ann", "api"), ("bob", "home"))]
    assert counts(stage.apply(WHOLE)) == {"unchanged": 5}
    assert counts(stage.apply(WHOLE, dry_run=True)) == {"unchanged": 5}
    assert [stage.system.store.monitor(owner, name) for owner, name in (("ann", "api"), ("bob", "home"))] == before


def test_apply_shows_differences_field_by_field_without_secrets(stage: Stage) -> None:
    stage.apply(WHOLE)
    text = dump(WHOLE).replace("30s", "20s").replace(f"token: {CANARY}", f"token: another-{CANARY}")
    text = text.replace("https://shop.example", "https://${HOST_OF_SHOP}")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HOST_OF_SHOP", "other.example")
        dry = stage.apply(text, dry_run=True)
        done = stage.apply(text)
    assert [(item.id, [(one.field, one.before, one.after) for one in item.changes]) for item in dry.items] == [
        ("shop", [("/base_url", '"https://shop.example"', '"https://${HOST_OF_SHOP}"')]),
        ("home", [("/every", '"30s"', '"20s"')]),
    ]
    secret = next(item for item in done.items if item.id == "api")
    assert [(one.field, one.before, one.after) for one in secret.changes] == [("secrets", "***", "***")]
    assert CANARY not in repr(dry) + repr(done)
    provider = stage.system.store.provider("shop")
    assert provider is not None
    assert provider.spec.base_url == "https://other.example"


def test_prune_removes_only_of_the_kinds_and_users_that_the_file_names(stage: Stage) -> None:
    stage.apply(WHOLE)
    less = {"users": {"ann": {"monitors": {"new": {"check": HTTP, "every": "60s"}}}}}
    assert counts(stage.apply(less, dry_run=True)) == {"created": 1, "left": 1}
    assert counts(stage.apply(less, prune=True, dry_run=True)) == {"created": 1, "removed": 1}
    with pytest.raises(InvalidInput, match="--yes"):
        stage.apply(less, prune=True)
    assert counts(stage.apply(less, prune=True, yes=True)) == {"created": 1, "removed": 1}
    text = text_of(stage.side)
    assert "new:" in text
    assert all(f"{name}:" in text for name in ("shop", "daily", "ops", "home"))
    assert "api:" not in text
    everything: dict[str, Any] = {"providers": {}, "batches": {}, "users": {"ann": {"channels": {}, "monitors": {}}}}
    assert counts(stage.apply(everything, prune=True, yes=True)) == {"removed": 4}


def test_refused_definition_does_not_stop_the_others(stage: Stage) -> None:
    document = {
        "monitors": {
            "a": {"check": {**HTTP, "headers": {"X": "***"}}, "every": "60s"},
            "b": {"check": HTTP, "every": "60s", "alert": {"channels": ["nothing"]}},
            "c": {"check": HTTP, "every": "60s"},
        }
    }
    report = stage.apply(document)
    assert counts(report) == {"created": 1, "refused": 2}
    assert [(item.id, item.code) for item in report.items if item.error] == [
        ("a", "invalid_input"),
        ("b", "invalid_input"),
    ]


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("users: {nobody: {monitors: {}}}", ""),
        ("monitor: {}", "definitions.yaml:1 /monitor"),
        ("users:\n  ann:\n    providers: {}", "definitions.yaml:3 /users/ann/providers"),
        ("monitors:\n  a:\n    every: 1x\n    check: {kind: tcp, host: a, port: 1}", ":3 /monitors/a/every"),
        ("monitors:\n  a: 5", "definitions.yaml:2 /monitors/a"),
        ("monitors:\n  a b: {every: 1m, check: {kind: tcp, host: a, port: 1}}", ""),
    ],
)
def test_mistake_is_refused_with_its_line(text: str, place: str, stage: Stage) -> None:
    try:
        report = stage.apply(text)
    except PacelineError as error:
        assert place in "".join(one.pointer for one in error.errors)  # noqa: PT017
    else:
        assert report.refused


def test_item_in_two_files_is_refused_with_both_places(stage: Stage) -> None:
    files = [stage.folder / "one.yaml", stage.folder / "two.yaml"]
    for file in files:
        file.write_text(dump({"users": {"bob": {"monitors": {"x": {"check": HTTP, "every": "60s"}}}}}))
    with pytest.raises(InvalidInput) as refused:
        apply_to(stage.side, Terms(files), lambda: "ann")
    (problem,) = refused.value.errors
    assert "two.yaml:" in problem.pointer
    assert "one.yaml:" in problem.detail


texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"), max_size=9)
ANSWER = {"status": ["2xx", 404], "json": [{"pointer": "/a", "is": None}], "body_matches": "^a\nb"}
BERLIN = {"cron": "0 6 * * *", "timezone": "Europe/Berlin"}
ids = st.sampled_from(["a", "b-1", "404", "true", "null"])
checks = st.one_of(
    st.just({"kind": "tcp", "host": "::1", "port": 25}),
    st.just({"kind": "tls", "host": "a.example", "expect": {"days_left": 9}}),
    st.just({"kind": "dns", "name": "a.example", "type": "TXT", "expect": {"equals": ["v=1 ${X}", "02:00"]}}),
    st.fixed_dictionaries(
        {"kind": st.just("outgoing"), "own": st.text(max_size=9).filter(lambda text: "\x00" not in text)}
    ),
    st.just(
        {**HTTP, "expect": {"status": ["2xx", 404], "json": [{"pointer": "/a", "is": None}], "body_matches": "^a\nb"}}
    ),
)
cadences = st.sampled_from(
    [{"every": "60s"}, {"cron": "0 6 * * *", "timezone": "Europe/Berlin"}, {"cron": "0 0 * * *"}]
)
monitors = st.builds(
    lambda check, cadence, rest: {"check": check, **cadence, **rest},
    checks,
    cadences,
    st.fixed_dictionaries(
        {}, optional={"tags": st.just(["yes", "1"]), "paused": st.just(True), "jitter": st.just("5s")}
    ),
)
files = st.fixed_dictionaries(
    {},
    optional={
        "providers": st.dictionaries(ids, st.sampled_from([{"base_url": "https://a.example"}, {"kind": "outgoing"}])),
        "batches": st.dictionaries(ids, st.sampled_from([{}, {"start": "12:30", "window": "6h"}])),
        "users": st.dictionaries(
            st.sampled_from(["ann", "bob"]),
            st.fixed_dictionaries({"monitors": st.dictionaries(ids, monitors, max_size=3)}),
        ),
    },
)


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(files)
def test_export_applied_to_an_empty_store_gives_the_same_export(document: dict[str, Any]) -> None:
    with stages(2) as (one, other):
        assert one.apply(document).refused == 0
        text = text_of(one.side)
        again = one.apply(text)
        assert counts(again) in ({}, {"unchanged": again.unchanged})
        assert other.apply(text).refused == 0
        assert text_of(other.side) == text
