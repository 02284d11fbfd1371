"""Your own worker for a batch: orders that a shop takes one at a time, in order.

    PACELINE_URL=http://127.0.0.1:8080 PACELINE_TOKEN=pl_… python batch_worker.py orders.txt

The provider is of kind "outgoing": Paceline does not call it, but gives its records to this program. The token belongs
to an admin, or has the scope worker:shop.
"""

from __future__ import annotations

import sys
from pathlib import Path

from paceline_client import ClaimedRecord, Client, Retry, Worker

book = Path(sys.argv[1] if len(sys.argv) > 1 else "orders.txt")
worker = Worker(Client())


@worker.batch("shop", concurrency=1)
def order(record: ClaimedRecord) -> dict[str, str]:
    """Carries out one order. Retry runs it again, in the same place; any other error makes it a dead letter."""
    if record.body["pieces"] < 1:
        raise ValueError("an order of nothing")
    if record.body.get("sold_out") and record.attempt == 1:
        raise Retry("sold out", after="1s")
    # If a worker dies after its work and before its report, the run comes again, with the same id.
    written = book.read_text().splitlines() if book.exists() else []
    line = f"{record.run} {record.endpoint} {record.body['pieces']}"
    if line in written:
        return {"order": "written before"}
    with book.open("a") as orders:
        orders.write(line + "\n")
    return {"order": "written"}


if __name__ == "__main__":
    worker.run()
