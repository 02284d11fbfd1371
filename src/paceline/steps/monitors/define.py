"""Monitors: put, edited, paused, resumed and removed by users. Each edit records a change, which moves the entry."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from paceline.core.ids import id_problem
from paceline.core.monitors.check_secrets import keep_hidden
from paceline.core.monitors.definition import Monitor, MonitorSpec, SpecLimits, parse_spec, spec_document
from paceline.core.monitors.load import firings_text
from paceline.core.monitors.put import QUEUES_MAX, OwnerLimits
from paceline.core.monitors.schedule import Entry
from paceline.core.monitors.values import PutMonitor, PutResult, RemoveMonitor, RemoveResult
from paceline.core.parsing import decode
from paceline.errors import InvalidInput, LimitReached, NotFound, PacelineError, RevisionMismatch
from paceline.ports import Store, Vault
from paceline.steps.alerts.channels import require_channels
from paceline.steps.edit import edit
from paceline.steps.monitors.check_secrets import seal_spec
from paceline.steps.monitors.phases import Allot, allot_each, allot_list
from paceline.steps.monitors.react import CHANGES_MAX, ReactReport, entries_after, react_to, react_to_all

_PATCH = msgspec.json.Decoder(dict[str, Any])


def put_monitors(
    store: Store, puts: Sequence[PutMonitor], *, monitors_max: int, now_ms: int, firings_max: int = 0
) -> list[PutResult]:
    """Write the definitions, then let their changes move the entries, so that an edit takes effect at once.

    Their secrets were sealed before: ``check_secrets.seal_put``.
    """
    limits = OwnerLimits(monitors_max, firings_max)
    if len(puts) > 1:
        results = _put(store, puts, limits, now_ms=now_ms, allot=allot_list)
    else:
        results = _put_singles(store, puts, limits, now_ms=now_ms)
    _let_follow(store, results, now_ms=now_ms)
    return results


def put_known_monitors(
    store: Store, puts: Sequence[PutMonitor], *, monitors_max: int, now_ms: int, firings_max: int = 0
) -> list[PutResult]:
    """Put monitors like ``put_monitors``, except those that need a phase.

    These are answered ``unplaced``, and are not written.
    """
    asking = [_asking(put) for put in puts]
    results = store.put_monitors(asking, monitors_max=monitors_max, firings_max=firings_max, now_ms=now_ms)
    _let_follow(store, results, now_ms=now_ms)
    return results


def put_many_monitors(
    store: Store, puts: Sequence[PutMonitor], *, page: int, monitors_max: int, now_ms: int, firings_max: int = 0
) -> list[PutResult]:
    """Put monitors like ``put_monitors``, in commits of ``page`` each. Phases are allotted to all of them together."""
    limits = OwnerLimits(monitors_max, firings_max)._asdict()

    def put_pages(step: Callable[..., list[PutResult]], puts: Sequence[PutMonitor]) -> list[PutResult]:
        pages = [puts[start : start + page] for start in range(0, len(puts), page)]
        return [result for one in pages for result in step(store, one, **limits, now_ms=now_ms)]

    results = put_pages(put_known_monitors, puts)
    left = [index for index, result in enumerate(results) if result.disposition == "unplaced"]
    placed = allot_list(store, [puts[index] for index in left], now_ms=now_ms)
    for index, result in zip(left, put_pages(put_monitors, placed), strict=True):
        results[index] = result
    return results


def put_monitors_and_entries(
    store: Store, puts: Sequence[PutMonitor], *, monitors_max: int, now_ms: int, firings_max: int = 0
) -> tuple[list[PutResult], dict[int, Entry]]:
    """Put single monitors together: the first check of a new one is due at once.

    Also return the entries after that, by generation, for callers that show them at once.
    """
    results = _put_singles(store, puts, OwnerLimits(monitors_max, firings_max), now_ms=now_ms)
    return results, entries_after(_let_follow(store, results, now_ms=now_ms))


def put_monitor(store: Store, put: PutMonitor, *, monitors_max: int, now_ms: int, firings_max: int = 0) -> PutResult:
    """Put one monitor; raise the error that a bulk put answers as a disposition."""
    result = put_monitors(store, [put], monitors_max=monitors_max, firings_max=firings_max, now_ms=now_ms)[0]
    if error := put_error(result, put, monitors_max=monitors_max, firings_max=firings_max):
        raise error
    return result


def put_error(result: PutResult, put: PutMonitor, *, monitors_max: int, firings_max: int = 0) -> PacelineError | None:
    """Return the error of a put that was not done; None if it was."""
    match result.disposition:
        case "created" | "replaced" | "unchanged":
            return None
        case "revision_mismatch":
            now = f"it is at revision {result.monitor.revision}" if result.monitor else "it does not exist"
            return RevisionMismatch(f"Monitor {put.id!r} is not as you have seen it: {now}. Read it again and retry.")
        case "limit_reached":
            return LimitReached(
                f"User {put.owner!r} may have at most {monitors_max} monitors. Remove some, or ask an admin."
            )
        case "rate_reached":
            return LimitReached(
                f"The monitors of user {put.owner!r} may fire at most {firings_max} times a second together; with this "
                f"one they would fire {firings_text(result.load)} times. Give some a longer interval, pause or remove "
                f"some, or ask the operator to raise firings_per_second_max."
            )
        case "queues_reached":
            return LimitReached(
                f"The checks of user {put.owner!r} name {QUEUES_MAX} queues already, the most there may be."
                " Use one of them."
            )
        case "unplaced":
            raise AssertionError("a put that asks for a phase is put again with one")
        case "no_owner":
            return NotFound(f"There is no user {put.owner!r}. An admin can add one.")


def edit_monitor(
    store: Store,
    owner: str,
    monitor_id: str,
    change: Callable[[MonitorSpec], MonitorSpec],
    *,
    expected_revision: int | None,
    monitors_max: int,
    now_ms: int,
    firings_max: int = 0,
) -> PutResult:
    """Write the changed spec only onto the one that was read; try again if somebody wrote in between.

    With ``expected_revision``, raise RevisionMismatch unless that is the stored revision.
    """

    def attempt() -> PutResult | None:
        monitor = get_monitor(store, owner, monitor_id)
        seen = monitor.revision if expected_revision is None else expected_revision
        spec = change(monitor.spec)
        before = monitor.spec.alert.channels
        require_channels(store, owner, spec.alert.channels, pointer="/alert/channels", before=before)
        put = PutMonitor(owner, monitor_id, spec, seen, expected_generation=monitor.generation)
        result = put_monitors(store, [put], monitors_max=monitors_max, firings_max=firings_max, now_ms=now_ms)[0]
        if result.disposition == "revision_mismatch" and expected_revision is None:
            return None
        if error := put_error(result, put, monitors_max=monitors_max, firings_max=firings_max):
            raise error
        return result

    return edit(f"Monitor {monitor_id!r}", attempt)


def merge_patch(spec: MonitorSpec, patch: bytes, limits: SpecLimits, vault: Vault) -> MonitorSpec:
    """Merge by RFC 7396: null removes a field, objects merge, the rest replaces.

    Changing ``check.kind`` replaces the check. Secrets that the patch does not name stay as they are stored; new ones
    are sealed.
    """
    document = decode(_PATCH, patch)
    target = spec_document(spec)
    target["check"] = dict(target["check"])
    check = document.get("check")
    if isinstance(check, dict) and check.get("kind", target["check"]["kind"]) != target["check"]["kind"]:
        target["check"] = {}
    if document.get("every") is not None:
        target.pop("cron", None)
        target.pop("timezone", None)
    if document.get("cron") is not None:
        target.pop("every", None)
    merged = seal_spec(parse_spec(msgspec.json.encode(_merge(target, document)), limits), vault)
    return msgspec.structs.replace(merged, check=keep_hidden(merged.check, spec.check))


def set_paused(spec: MonitorSpec, *, paused: bool) -> MonitorSpec:
    return msgspec.structs.replace(spec, paused=paused)


def remove_monitors(store: Store, removes: Sequence[RemoveMonitor], *, now_ms: int) -> list[PacelineError | None]:
    """Remove monitors; when this returns, none of them fires any more.

    Return an error for each, None if it was removed.
    """
    results = store.remove_monitors(removes)
    if "removed" in results:
        react_to_all(store, now_ms=now_ms)
    return [_remove_error(result, remove) for result, remove in zip(results, removes, strict=True)]


def remove_monitor(
    store: Store, owner: str, monitor_id: str, *, now_ms: int, expected_revision: int | None = None
) -> None:
    """Remove one monitor; raise the error that ``remove_monitors`` returns."""
    remove = RemoveMonitor(owner=owner, id=monitor_id, expected_revision=expected_revision)
    if error := remove_monitors(store, [remove], now_ms=now_ms)[0]:
        raise error


def get_monitor(store: Store, owner: str, monitor_id: str) -> Monitor:
    monitor = store.monitor(owner, monitor_id)
    if monitor is None:
        raise no_monitor(owner, monitor_id)
    return monitor


def parse_put(
    owner: str,
    monitor_id: str,
    body: bytes,
    limits: SpecLimits,
    *,
    expected_revision: int | None = None,
    pointer: str = "",
) -> PutMonitor:
    """Return a put from JSON, or raise InvalidInput that names what is wrong."""
    if problem := id_problem(monitor_id, f"{pointer}/id"):
        raise InvalidInput.of(problem)
    spec = parse_spec(body, limits, pointer=pointer)
    return PutMonitor(owner=owner, id=monitor_id, spec=spec, expected_revision=expected_revision)


def no_monitor(owner: str, monitor_id: str) -> NotFound:
    return NotFound(f"User {owner!r} has no monitor {monitor_id!r}.")


def _remove_error(result: RemoveResult, remove: RemoveMonitor) -> PacelineError | None:
    match result:
        case "removed":
            return None
        case "not_found":
            return no_monitor(remove.owner, remove.id)
        case "revision_mismatch":
            return RevisionMismatch(f"Monitor {remove.id!r} was changed in the meantime. Read it again and retry.")


def _put(
    store: Store, puts: Sequence[PutMonitor], limits: OwnerLimits, *, now_ms: int, allot: Allot
) -> list[PutResult]:
    """Write the puts that need no phase, then allot phases to the others and write them."""
    return _put_again(store, [_asking(put) for put in puts], limits, now_ms=now_ms, allot=allot)


def _put_singles(store: Store, puts: Sequence[PutMonitor], limits: OwnerLimits, *, now_ms: int) -> list[PutResult]:
    """Put single monitors like ``_put``: one that may be new gets a phase at once, which saves asking for it.

    If there is a monitor of that name that keeps its interval, the phase is not used.
    """
    first = [_asking(put) for put in puts]
    new = [index for index, put in enumerate(first) if put.asks_phase and not put.expected_revision]
    for index, placed in zip(new, allot_each(store, [puts[index] for index in new], now_ms=now_ms), strict=True):
        first[index] = placed
    return _put_again(store, first, limits, now_ms=now_ms, allot=allot_each)


def _put_again(
    store: Store, puts: Sequence[PutMonitor], limits: OwnerLimits, *, now_ms: int, allot: Allot
) -> list[PutResult]:
    """Write the puts; allot a phase to those that turn out to need one and write them again."""
    results = store.put_monitors(puts, **limits._asdict(), now_ms=now_ms)
    left = [index for index, result in enumerate(results) if result.disposition == "unplaced"]
    if left:
        placed = allot(store, [puts[index] for index in left], now_ms=now_ms)
        done = store.put_monitors(placed, **limits._asdict(), now_ms=now_ms)
        for index, result in zip(left, done, strict=True):
            results[index] = result
    return results


def _asking(put: PutMonitor) -> PutMonitor:
    spec = put.spec
    return msgspec.structs.replace(put, asks_phase=True) if spec.is_allotted and spec.phase is None else put


def _let_follow(store: Store, results: Sequence[PutResult], *, now_ms: int) -> list[ReactReport]:
    new = [result.change for result in results if result.change is not None]
    pages = [new[start : start + CHANGES_MAX] for start in range(0, len(new), CHANGES_MAX)]
    reports = [react_to(store, page, now_ms=now_ms) for page in pages]
    if any(report.lost for report in reports) or any(result.disposition == "replaced" for result in results):
        reports.append(react_to_all(store, now_ms=now_ms))
    return reports


def _merge(target: dict[str, Any], patch: dict[str, Any]) -> dict[str, Any]:
    """Return the merged document. The depth is bounded: the decoder refused deeper nesting."""
    merged = dict(target)
    for name, value in patch.items():
        if value is None:
            merged.pop(name, None)
        elif isinstance(value, dict):
            below = merged.get(name)
            merged[name] = _merge(below if isinstance(below, dict) else {}, value)
        else:
            merged[name] = value
    return merged
