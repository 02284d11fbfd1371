"""Edits of a store's rows behind its back: they make one of two users wait while the other is served."""

from __future__ import annotations

from random import Random

import apsw

from tests.steps.history.support.monitor_edits import Act, Edit, pick

_BOBS = "SELECT id FROM user WHERE name = 'bob'"


def start_check_last(db: apsw.Connection, random: Random) -> None:
    """The one check of a user starts after all checks of the other."""
    (handle,) = pick(
        db,
        random,
        f"""SELECT handle FROM outcome JOIN run USING (handle) JOIN monitor USING (generation)
            WHERE monitor.owner = ({_BOBS})""",  # noqa: S608  a fixed text
    )
    (last_ms,) = pick(db, random, "SELECT max(started_ms) FROM outcome")
    db.execute("UPDATE outcome SET started_ms = ?1, ended_ms = ?1 WHERE handle = ?2", (last_ms, handle))


def delete_start_of_check(db: apsw.Connection, random: Random) -> None:
    """A check of a user still waits, and the other's go on."""
    (handle,) = pick(
        db,
        random,
        f"""SELECT handle FROM outcome JOIN run USING (handle) JOIN monitor USING (generation)
            WHERE monitor.owner = ({_BOBS})""",  # noqa: S608  a fixed text
    )
    db.execute("DELETE FROM outcome WHERE handle = ?", (handle,))
    db.execute("UPDATE lane SET position = 0 WHERE id = 1")


def send_last(db: apsw.Connection, random: Random) -> None:
    """The measurements of a user are sent after all of the other."""
    (last_ms,) = pick(db, random, "SELECT max(at_ms) FROM posting")
    bobs = f"SELECT id FROM measurement WHERE owner = ({_BOBS})"  # noqa: S608  a fixed text
    db.execute(
        f"UPDATE posting SET at_ms = ? WHERE hold & 16383 > 0 AND hold >> 14 IN ({bobs})",  # noqa: S608
        (last_ms + 60_000,),
    )


def _edit(promise: str, act: Act) -> Edit:
    return Edit(act.__name__, frozenset({promise}), act)


FAIR_EDITS = (
    _edit("fair", start_check_last),
    _edit("fair", delete_start_of_check),
    _edit("fair", send_last),
)
