"""A checker as a process of its own: writes down what it begins and ends, so that a test can count.

``python -m tests.client.support.checker_program DIARY SECONDS``
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

from paceline_client import ClaimedRecord, ClaimedRun, Client, Worker

diary, seconds = Path(sys.argv[1]), float(sys.argv[2])
worker = Worker(Client(), lease="2s")


def note(word: str, item: ClaimedRun | ClaimedRecord) -> None:
    """One line in one write, so that lines of several processes do not mix."""
    line = f"{word} {item.run} {item.attempt} {os.getpid()}\n"
    descriptor = os.open(diary, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.write(descriptor, line.encode())
    os.close(descriptor)


def carry_out(item: ClaimedRun | ClaimedRecord) -> dict[str, int]:
    note("begin", item)
    time.sleep(seconds)
    note("end", item)
    return {"pid": os.getpid()}


if "--batch" in sys.argv:
    worker.batch("shop", concurrency=3)(carry_out)
else:
    worker.checker(concurrency=3)(carry_out)
print("ready", flush=True)
worker.run()
