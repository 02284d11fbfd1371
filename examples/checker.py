"""Your own checker in Python: web pages that must show a text.

    PACELINE_URL=http://127.0.0.1:8080 PACELINE_TOKEN=pl_… python checker.py

It serves the queue "pages". A monitor for it, in Python:

    client.monitors.put("home", every="60s", check={
        "kind": "outgoing", "queue": "pages", "url": "https://example.org/", "text": "Example"})
"""

from __future__ import annotations

import httpx

from paceline_client import ClaimedRun, Client, Retry, Worker

worker = Worker(Client())


@worker.checker("pages", concurrency=4)
async def look(run: ClaimedRun) -> dict[str, int]:
    """Checks one page. Returns the detail to keep with the run; raises an error if the check failed."""
    try:
        async with httpx.AsyncClient(timeout=10) as http:
            page = await http.get(run.check["url"])
    except httpx.TransportError as error:
        raise Retry(f"no answer: {error}", after="1s") from error
    if run.check["text"] not in page.text:
        raise ValueError(f"{run.check['text']!r} is not on the page")
    return {"status_code": page.status_code, "bytes": len(page.content)}


if __name__ == "__main__":
    worker.run()
