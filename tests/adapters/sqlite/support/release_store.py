"""Writes a store with rows of every kind as SQL, to be kept with a release.

    python -m tests.adapters.sqlite.support.release_store 0.1.0

Done once, when that version is released; later versions must open the file, bring it up to date and read it.
"""

from __future__ import annotations

import io
import sys
import tempfile
from contextlib import closing
from pathlib import Path
from typing import Any

import apsw
import apsw.shell

from paceline.testing import Answer, VirtualPaceline
from paceline.testing.outside import OutsideRequest
from paceline_client.models.batches import RecordDocument
from paceline_client.models.job_documents import JobDocument

RELEASES = Path(__file__).parents[1] / "releases"
DAY = "2026-01-01"


def answer(request: OutsideRequest) -> Answer:
    if "refused" in request.url:
        return Answer(status=404)
    return Answer(status=503 if "broken" in request.url else 200)


def fill(p: VirtualPaceline) -> None:
    """A day of everything: users, monitors, alerts, a batch with a dead letter, a job in each state."""
    p.answers = answer
    ann = p.client_for("ann", daily_credits=10_000)
    ann.channels.put("ops", kind="webhook", url="https://hooks.example/ops")
    web = {"kind": "http", "url": "https://example.org/", "headers": {"X-Key": "a-secret"}}
    ann.monitors.put("home", check=web, every="10m", tags=["web"])
    broken = {"kind": "http", "url": "https://example.org/broken"}
    ann.monitors.put("broken", check=broken, every="10m", alert={"after": 2, "channels": ["ops"]})
    ann.monitors.put("night", check={"kind": "tcp", "host": "example.org", "port": 25}, cron="0 3 * * *")
    ann.monitors.put("own", check={"kind": "outgoing", "queue": "disks", "path": "/"}, every="1h", overlap="queue")
    ann.monitors.put("paused", check=web, every="1h")
    ann.monitors.pause("paused")
    ann.monitors.put("removed", check=web, every="1h")
    with_batch(p)
    with_job(p)
    p.advance("3h")
    ann.monitors.remove("removed")
    ann.monitors.silence("broken", lasting="30d", reason="known")
    ann.outgoing.claim(max=1, queue="disks", lease="12h")
    p.advance("10m")


def with_batch(p: VirtualPaceline) -> None:
    p.client.providers.put("shop", base_url="https://shop.example", rate="5/1s", headers={"X-Key": "a-secret"})
    p.client.batches.put("orders", start="00:00", window="6h")
    endpoints = {"o1": "/1", "o2": "/refused", "o3": "/3?day={date}", "o4": "/4"}
    records: list[RecordDocument] = [
        {"id": name, "provider": "shop", "endpoint": path} for name, path in endpoints.items()
    ]
    p.client.records.put("orders", records)
    p.client.days.plan("orders", DAY)


def with_job(p: VirtualPaceline) -> None:
    p.client.accounts.put("lab", concurrent=2)
    p.client.keys.add("lab", p.atlas.add_account("lab")[0])
    ping = {"type": "ping", "af": 4, "target": "192.0.2.1", "description": "a"}
    probes = [{"requested": 5, "type": "area", "value": "WW"}]
    measurements: list[Any] = [{"definitions": [ping], "probes": probes, "is_oneoff": True} for _ in range(2)]
    until = int(p.now.timestamp()) + 7 * 86_400
    lasting: Any = {
        "definitions": [ping | {"interval": 3_600}],
        "probes": probes,
        "is_oneoff": False,
        "stop_time": until,
    }
    document: JobDocument = {"title": "survey", "measurements": [*measurements, lasting]}
    p.client_for("ann").jobs.submit(document)


def dump(file: Path) -> str:
    """The SQL that makes the store again, with its version."""
    written = io.StringIO()
    with closing(apsw.Connection(str(file))) as db:
        shell: Any = apsw.shell.Shell(db=db, stdout=written)
        shell.process_command(".dump")
        numbers = {name: db.pragma(name) for name in ("application_id", "user_version")}
    lines = [line for line in written.getvalue().splitlines() if not line.startswith("-- ")]
    return "\n".join([*lines, *(f"PRAGMA {name} = {value};" for name, value in numbers.items())]) + "\n"


def main() -> None:
    (version,) = sys.argv[1:]
    with tempfile.TemporaryDirectory() as folder, VirtualPaceline() as p:
        fill(p)
        file = Path(folder) / "store.db"
        p._system.store.backup(file, progress=lambda _done, _all: None)
        RELEASES.mkdir(exist_ok=True)
        (RELEASES / f"{version}.sql").write_text(dump(file))


if __name__ == "__main__":
    main()
