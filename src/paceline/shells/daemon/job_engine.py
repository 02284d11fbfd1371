"""Loops of jobs in one process: dispatchers, the follower and the webhooks, and their orderly end."""

from __future__ import annotations

import random
import secrets
import time
from collections.abc import Callable

from paceline.core.monitors.definition import duration_ms
from paceline.ports import Atlas
from paceline.shells.daemon.in_flight import InFlight
from paceline.shells.daemon.jobs import SEND_GRACE_S, AtlasLoop, Dispatcher, Follower
from paceline.shells.daemon.loop import JOIN_S, Loop, LoopTurn
from paceline.shells.daemon.metrics import Metrics
from paceline.shells.daemon.webhooks import Webhooks
from paceline.steps.jobs.dispatch import DispatchSettings
from paceline.wiring import System, open_atlas, open_caller

HOOK_DRAIN_S = 3.0
"""How long calls to webhooks may still take in a drain; those that are cut short are tried again."""


class JobEngine:
    """The loops of jobs, each with its own client for RIPE or for webhooks."""

    def __init__(self, system: System, metrics: Metrics, *, own: list[tuple[str, int]]) -> None:
        settings, chance = system.settings, random.SystemRandom().random
        dispatching = DispatchSettings(
            site=system.store.site(secrets.token_hex(4)),
            secret=system.secret_key,
            sending_max=settings.atlas_sends_max,
            settle_ms=duration_ms(settings.atlas_settle),
        )
        self._caller = open_caller(settings, system.clock, own=own)
        webhooks = Webhooks(system, self._caller, metrics, chance=chance)
        self._webhooks = InFlight(webhooks, clock=system.clock, remote=system.traits.remote)
        self._telling = Loop("webhooks", self._webhooks.turn, metrics)
        self._tell_dispatchers: list[Callable[[], None]] = []
        self._hurried = False

        def dispatcher_turn(atlas: Atlas) -> Callable[[], LoopTurn]:
            dispatcher = Dispatcher(system, atlas, dispatching, metrics, chance=chance)
            self._tell_dispatchers.append(dispatcher.tell)
            return dispatcher.turn

        self._dispatchers = [
            AtlasLoop(f"dispatcher-{number}", open_atlas(settings, own=own), dispatcher_turn, metrics)
            for number in range(1, settings.atlas_sends_max + 1)
        ]
        self._follower = AtlasLoop(
            "follower",
            open_atlas(settings, own=own),
            lambda atlas: (
                Follower(
                    system, atlas, dispatching, metrics, chance=chance, finished=self._webhooks.wake, freed=self.wake
                ).turn
            ),
            metrics,
        )

    @property
    def loops(self) -> list[Loop]:
        return [*self._dispatchers, self._follower, self._telling]

    def wake(self) -> None:
        """Makes the dispatchers look at once: a job was submitted, or an account may have room again."""
        for tell in self._tell_dispatchers:
            tell()
        for loop in self._dispatchers:
            loop.wake()

    def hurry(self) -> None:
        """Makes a drain end sends within a second. Their answers count as lost, and are looked up later."""
        self._hurried = True
        self._webhooks.hurry()
        for loop in self._dispatchers:
            if loop.stopping:
                loop.interrupt()

    def drain(self) -> None:
        """Ends the loops after they were stopped.

        A send gets some seconds for its answer; other requests are cut short.
        """
        self._follower.interrupt()
        self._webhooks.wake()
        self._telling.join(JOIN_S)
        self._webhooks.drain(wait_s=HOOK_DRAIN_S, settle_s=HOOK_DRAIN_S)
        self._caller.close()
        until_s = time.monotonic() + (0.0 if self._hurried else SEND_GRACE_S)
        for loop in self._dispatchers:
            loop.join(max(0.0, until_s - time.monotonic()))
            loop.interrupt()
        for loop in (*self._dispatchers, self._follower):
            loop.join(JOIN_S)
            loop.close()
