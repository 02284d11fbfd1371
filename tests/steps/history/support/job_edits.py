"""Edits of a store's rows behind its back, jobs' part."""

from __future__ import annotations

from random import Random

import apsw

from tests.steps.history.support.monitor_edits import Act, Edit, pick

_ENDED = "SELECT id FROM measurement WHERE settled IS NOT NULL AND attempt > 0"


def drop_hold(db: apsw.Connection, random: Random) -> None:
    hold, meter = pick(db, random, "SELECT hold, meter FROM posting WHERE kind = 'hold' AND amount > 0")
    db.execute("DELETE FROM posting WHERE hold = ? AND meter = ? AND kind = 'hold'", (hold, meter))


def drop_refund(db: apsw.Connection, random: Random) -> None:
    hold, meter = pick(db, random, "SELECT hold, meter FROM posting WHERE kind = 'refund'")
    db.execute("DELETE FROM posting WHERE hold = ? AND meter = ? AND kind = 'refund'", (hold, meter))


def double_posting(db: apsw.Connection, random: Random) -> None:
    """A hold counts twice, and so does what is held on its meter: only the line itself tells."""
    hold, meter, amount = pick(db, random, "SELECT hold, meter, amount FROM posting WHERE kind = 'hold' AND amount > 0")
    db.execute("UPDATE posting SET amount = 2 * amount WHERE hold = ? AND meter = ? AND kind = 'hold'", (hold, meter))
    db.execute("UPDATE meter SET held = held + ? WHERE id = ?", (amount, meter))


def refund_too_much(db: apsw.Connection, random: Random) -> None:
    hold, meter = pick(db, random, "SELECT hold, meter FROM posting WHERE kind = 'settle' AND amount > 0")
    where = "WHERE hold = ? AND meter = ? AND kind = 'refund'"
    db.execute(f"UPDATE posting SET amount = amount + 1 {where}", (hold, meter))  # noqa: S608  a fixed text
    db.execute("UPDATE meter SET held = held - 1 WHERE id = ?", (meter,))


def forget_spending(db: apsw.Connection, random: Random) -> None:
    (meter,) = pick(db, random, "SELECT id FROM meter WHERE spent > 0")
    db.execute("UPDATE meter SET spent = spent - 1 WHERE id = ?", (meter,))


def charge_more(db: apsw.Connection, random: Random) -> None:
    """A measurement, its postings and its meter agree on more than was delivered."""
    (handle,) = pick(
        db, random, "SELECT id FROM measurement WHERE state = 'done' AND settled = credits AND settled > 0"
    )
    db.execute("UPDATE atlas_measurement SET delivered = 0 WHERE measurement = ?", (handle,))


def settle_another_sum(db: apsw.Connection, random: Random) -> None:
    (handle,) = pick(db, random, "SELECT id FROM measurement WHERE settled > 0")
    db.execute("UPDATE measurement SET settled = settled - 1 WHERE id = ?", (handle,))


def exceed_the_day(db: apsw.Connection, random: Random) -> None:
    (user,) = pick(
        db, random, "SELECT user.id FROM user JOIN job ON job.owner = user.id WHERE job.reserved > job.refunded"
    )
    db.execute("UPDATE user SET daily_credits = 0 WHERE id = ?", (user,))


def forge_success(db: apsw.Connection, random: Random) -> None:
    (handle,) = pick(db, random, f"{_ENDED} AND state = 'done'")
    db.execute("UPDATE atlas_measurement SET status = 5 WHERE measurement = ?", (handle,))


def delete_measurement(db: apsw.Connection, random: Random) -> None:
    (handle,) = pick(db, random, _ENDED)
    db.execute("DELETE FROM measurement WHERE id = ?", (handle,))


def miscount_job(db: apsw.Connection, random: Random) -> None:
    (job,) = pick(db, random, "SELECT id FROM job WHERE done > 0")
    db.execute("UPDATE job SET done = done - 1, failed = failed + 1 WHERE id = ?", (job,))


def forget_idempotency_key(db: apsw.Connection, random: Random) -> None:
    (job,) = pick(db, random, "SELECT id FROM job WHERE idempotency IS NOT NULL AND purged = 0")
    db.execute("UPDATE job SET idempotency = NULL WHERE id = ?", (job,))


def raise_account_limit(db: apsw.Connection, random: Random) -> None:
    """Raises a limit of an account above the declared one."""
    (meter,) = pick(db, random, "SELECT id FROM meter WHERE name GLOB 'account/*'")
    db.execute('UPDATE meter SET "limit" = "limit" * 3 WHERE id = ?', (meter,))


def free_slot_while_it_runs(db: apsw.Connection, random: Random) -> None:
    """RIPE's last word on a measurement that gave its slot back is that it runs."""
    (handle,) = pick(
        db,
        random,
        """SELECT DISTINCT measurement.id FROM measurement
           JOIN posting ON hold = measurement.id << 14 | attempt AND kind = 'settle' AND at_ms = ended_ms
           WHERE state = 'done' AND measurement.reason = ''""",
    )
    db.execute("UPDATE atlas_measurement SET status = 2 WHERE measurement = ?", (handle,))


def run_twice_at_ripe(db: apsw.Connection, random: Random) -> None:
    """Reconciliation has noted a second measurement under the same mark."""
    (job,) = pick(db, random, "SELECT name FROM job WHERE purged = 0")
    stray = f'{{"kind": "stray", "account": "wide", "atlas_id": 7, "job": "{job}", "index": 0, "seen_ms": 1}}'
    db.execute("INSERT INTO item (kind, key, value) VALUES ('stray', '7', ?)", (stray.encode(),))


def _edit(promise: str, act: Act) -> Edit:
    return Edit(act.__name__, frozenset({promise}), act)


JOB_EDITS = (
    _edit("within budget", drop_hold),
    _edit("within budget", drop_refund),
    _edit("within budget", double_posting),
    _edit("within budget", refund_too_much),
    _edit("within budget", forget_spending),
    _edit("within budget", charge_more),
    _edit("within budget", settle_another_sum),
    _edit("within budget", exceed_the_day),
    _edit("within budget", raise_account_limit),
    _edit("within budget", free_slot_while_it_runs),
    _edit("once", forget_idempotency_key),
    _edit("once", run_twice_at_ripe),
    _edit("nothing lost", forge_success),
    _edit("nothing lost", delete_measurement),
    _edit("nothing lost", miscount_job),
)
