"""Type checking code that uses the client: no Any where the shape is known, and mistakes are found."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
PROGRAM = """
from datetime import timedelta
from paceline_client import AsyncClient, Client

client = Client("http://127.0.0.1:8080", "t")
reveal_type(client.monitors.get("home"))
reveal_type(client.monitors.get("home").every)
reveal_type(client.monitors.get_if_changed("home", if_none_match="x"))
for run in client.monitors.runs("home", limit=10):
    reveal_type(run.due)
reveal_type(client.jobs.submit({"measurements": []}).wait())
reveal_type(client.records.load("nightly", []))
check = client.monitors.get("home").check
if check["kind"] == "http":
    reveal_type(check["url"])
client.monitors.put("home", check={"kind": "http", "url": "x"}, every=timedelta(minutes=1))
client.monitors.edit("home", lambda home: {"tags": [*home.tags, "web"]})


async def main(client: AsyncClient) -> None:
    reveal_type(await client.monitors.get("home"))
    async for run in client.monitors.runs("home"):
        reveal_type(run.run)
    job = await client.jobs.submit({"measurements": []})
    reveal_type(await job.wait())
    reveal_type(await job.results().to_list())


client.monitors.put("home", every="60s")
client.monitors.put("home", check={"kind": "outgoing"}, evry="60s")
client.monitors.get(7)
client.monitors.get("home").health == "sick"
client.monitors.edit("home", lambda home: {"tagz": []})
"""
REVEALED = [
    "paceline_client.models.monitors.Monitor",
    "paceline_client.durations.Duration | None",
    "paceline_client.models.monitors.Monitor | None",
    "datetime.datetime",
    "paceline_client.models.jobs.JobStatus",
    "paceline_client.models.batches.RecordsPut",
    "str",
    "paceline_client.models.monitors.Monitor",
    "str",
    "paceline_client.models.jobs.JobStatus",
    "list[paceline_client.models.jobs.Result]",
]
WRONG = ["call-arg", "call-arg", "arg-type", "comparison-overlap", "typeddict-unknown-key"]


def test_type_checker_sees_answers_and_mistakes_in_both_clients(tmp_path: Path) -> None:
    file = tmp_path / "program.py"
    file.write_text(PROGRAM)
    command = [
        sys.executable,
        "-m",
        "mypy",
        "--strict",
        "--cache-dir",
        str(tmp_path / "cache"),
        "--config-file=",
        str(file),
    ]
    done = subprocess.run(
        command,
        cwd=tmp_path,
        env={"MYPYPATH": str(ROOT / "client" / "src")},
        capture_output=True,
        text=True,
        check=False,
    )
    notes = [line for line in done.stdout.splitlines() if line.startswith("program.py")]
    assert [line.split('"')[1] for line in notes if "Revealed type" in line] == REVEALED, done.stdout + done.stderr
    assert [line.rpartition("[")[2].rstrip("]") for line in notes if ": error:" in line] == WRONG, done.stdout
