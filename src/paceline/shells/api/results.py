"""A job's results, read from RIPE while the answer goes out."""

from __future__ import annotations

from paceline.errors import FieldProblem, InvalidInput
from paceline.shells.api.answers import Stream, stream_answer
from paceline.shells.api.auth import viewer_of
from paceline.shells.api.pages import query
from paceline.shells.api.parts import Call
from paceline.steps.job_report import find_job
from paceline.steps.results import write_merged, write_results

MEDIA = "application/x-ndjson"


async def stream_results(call: Call) -> Stream:
    parts = call.parts
    merged = query(call.query_string, "merged").get("merged")
    if merged not in (None, "target"):
        raise InvalidInput.of(FieldProblem("/query/merged", "target, or leave it out"))
    job = find_job(parts.store, viewer_of(call.user), call.params["job"])
    write = write_results if merged is None else write_merged
    pages = parts.reads.stream(
        call.user.id, lambda atlas, take: write(parts.store, atlas, parts.system.vault, job, take)
    )
    name = f'attachment; filename="{job.id}.ndjson"'
    return stream_answer(
        pages, MEDIA, (b"content-disposition", name.encode()), close=pages.close, threads=parts.reads.threads
    )
