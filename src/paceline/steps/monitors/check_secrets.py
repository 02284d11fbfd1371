"""Secrets of checks: sealed before they are stored, and opened for the process that makes the check."""

from __future__ import annotations

from functools import lru_cache, partial
from itertools import islice

from msgspec.structs import replace

from paceline.core.monitors.check_secrets import hides, is_clear, keep_hidden, open_check, seal_check
from paceline.core.monitors.checks import PolledCheck
from paceline.core.monitors.definition import MonitorSpec
from paceline.core.monitors.values import PutMonitor
from paceline.errors import WrongSetting
from paceline.ports import Store, Vault
from paceline.steps.alerts.channels import KnownChannels, require_channels
from paceline.steps.walk import walk

KEPT_MAX = 65_536
"""Maximum number of opened values that a process remembers: the same check runs many times."""
PAGE = 1_000


class CheckOpener:
    """Opens checks for one process. One thread uses it at a time."""

    def __init__(self, vault: Vault) -> None:
        self._unseal = lru_cache(maxsize=KEPT_MAX)(vault.unseal)

    def open(self, check: PolledCheck) -> PolledCheck | None:
        """Return the check with its secrets opened; None: it was sealed with another key."""
        try:
            return open_check(check, self._unseal)
        except WrongSetting:
            return None


def seal_spec(spec: MonitorSpec, vault: Vault) -> MonitorSpec:
    return replace(spec, check=seal_check(spec.check, vault.seal)) if is_clear(spec.check) else spec


def open_spec(spec: MonitorSpec, vault: Vault) -> MonitorSpec:
    return replace(spec, check=open_check(spec.check, vault.unseal))


def seal_put(
    store: Store, vault: Vault, put: PutMonitor, *, pointer: str = "", known: KnownChannels | None = None
) -> PutMonitor:
    """Return the put with its secrets sealed.

    Values to be kept are read from the store; the put then holds only for the revision that was read. InvalidInput if
    it names a channel that its owner does not have. ``known``: channels that are remembered for further puts.
    """
    require_channels(store, put.owner, put.spec.alert.channels, pointer=f"{pointer}/alert/channels", known=known)
    spec = seal_spec(put.spec, vault)
    if not hides(spec.check):
        return replace(put, spec=spec) if spec is not put.spec else put
    stored = store.monitor(put.owner, put.id)
    check = keep_hidden(spec.check, stored.spec.check if stored else None, pointer=pointer)
    assert stored is not None
    seen = stored.revision if put.expected_revision is None else put.expected_revision
    return replace(
        put,
        spec=replace(spec, check=check),
        expected_revision=seen,
        expected_generation=stored.generation if put.expected_generation is None else put.expected_generation,
    )


def seal_stored(store: Store, vault: Vault) -> int:
    """Seal secrets that an older version stored in the clear. Return how many monitors were sealed."""
    sealed = 0
    monitors = (monitor for user in walk(store.users) for monitor in walk(partial(store.monitors, user.id)))
    clear = (monitor for monitor in monitors if is_clear(monitor.spec.check))
    while page := list(islice(clear, PAGE)):
        sealed += store.rewrite_specs([replace(one, spec=seal_spec(one.spec, vault)) for one in page])
    return sealed
