"""Routes of the dashboard: pages, sessions, and the files that every page loads."""

from __future__ import annotations

from urllib.parse import quote

from starlette.types import Scope

from paceline.errors import PacelineError, Unauthenticated
from paceline.shells.api.http.answers import ApiAnswer, empty_answer
from paceline.shells.api.http.app import Endpoint
from paceline.shells.api.http.problems import retry_after_s
from paceline.shells.api.http.route import Route
from paceline.shells.dashboard import files, signing_in
from paceline.shells.dashboard.rendering import html, is_part
from paceline.shells.dashboard.views import (
    accounts,
    batches,
    day,
    going,
    jobs,
    monitors,
    overview,
    people,
    providers,
    runs,
)


def dashboard_routes() -> tuple[Route, ...]:
    groups = (
        overview.PAGES,
        monitors.PAGES,
        providers.PAGES,
        batches.PAGES,
        day.PAGES,
        jobs.PAGES,
        accounts.PAGES,
        people.PAGES,
        runs.PAGES,
        going.PAGES,
        signing_in.SESSIONS,
        files.FILES,
    )
    return tuple(route for group in groups for route in group.routes)


class PageEndpoint(Endpoint):
    """Endpoint of pages: leads users who are not signed in to the form, and shows problems as pages."""

    def problem(self, error: PacelineError, scope: Scope) -> ApiAnswer:
        if is_part(dict(scope["headers"])):
            return super().problem(error, scope)
        if isinstance(error, Unauthenticated):
            query = scope["query_string"].decode("latin-1")
            wanted = scope["path"] + (f"?{query}" if query else "")
            if scope["path"] == "/":
                return signing_in.form(wanted)
            return empty_answer(303, (b"location", f"/ui/sign-in?next={quote(wanted, safe='')}".encode()))
        seconds = retry_after_s(error)
        answer = html("problem.html", {"error": error}, code=error.status)
        extra = () if seconds is None else ((b"retry-after", b"%d" % seconds),)
        return answer._replace(headers=(*answer.headers, *extra))
