"""Another Paceline, asked over REST: returns the same views as the store, and its problems as commands show them."""

from __future__ import annotations

import os
import ssl
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Generic, NamedTuple, TypeVar

import httpx
import msgspec

from paceline.core.instants import to_ms, to_text
from paceline.shells.cli.logins import Login
from paceline.shells.cli.options import LONGEST_PAGE
from paceline.shells.cli.output import CliProblem, RemoteError
from paceline.shells.lists import ListPage, PageRange
from paceline.steps.views.report import UserView
from paceline_client.answers import Opened, Reply
from paceline_client.calls import Call as Request
from paceline_client.client import Client
from paceline_client.problems import ClientError, NoAnswer
from paceline_client.problems import Problem as Refusal

TRIES_MAX = 3
EDITS_MAX = 10
"""How often a change is tried again after somebody else was faster."""
T = TypeVar("T")
Query = Mapping[str, str | int | None]


class RemoteAnswer(NamedTuple, Generic[T]):
    """An answer with its status and its ETag."""

    view: T
    status: int
    etag: str | None


class Remote:
    """The service at ``url``. ``names`` are the values for the braces of a path."""

    def __init__(self, login: Login) -> None:
        self.url = login.url
        with _as_remote_errors(self.url):
            self._client = Client(login.url, login.token, tries=TRIES_MAX, ca_file=login.ca_file)

    def close(self) -> None:
        self._client.close()

    def owner(self, user: str | None) -> str:
        """Returns the user of a command: the one that is named, else $PACELINE_USER, else the token's own user."""
        return self.get("/v1/users/{user}", UserView, user=user or os.environ.get("PACELINE_USER") or "me").id

    def get(self, path: str, type_: type[T], *, query: Query | None = None, **names: Any) -> T:
        return self.ask("GET", path, type_, query=query, **names)

    def find(self, path: str, type_: type[T], **names: Any) -> RemoteAnswer[T] | None:
        """Returns the answer, or None if there is no such thing."""
        try:
            return self.exchange("GET", path, type_, **names)
        except RemoteError as error:
            if error.code != "not_found":
                raise
            return None

    def ask(self, method: str, path: str, type_: type[T], **more: Any) -> T:
        """Sends a request and returns the view in its answer. ``more``: arguments of ``exchange``."""
        return self.exchange(method, path, type_, **more).view

    def exchange(
        self,
        method: str,
        path: str,
        type_: type[T],
        *,
        body: Any = None,
        query: Query | None = None,
        headers: Mapping[str, str | None] | None = None,
        wait_s: float = 0,
        **names: Any,
    ) -> RemoteAnswer[T]:
        """Sends a request and returns its answer.

        Bytes as ``body`` are sent as they are; anything else as JSON.
        """
        document = msgspec.Raw(body) if isinstance(body, bytes) else body
        request = Request(
            method, path, _ViewReader(type_), names, query or {}, headers or {}, body=document, wait_s=wait_s
        )
        with _as_remote_errors(self.url):
            return self._client.run(request)

    def do(self, method: str, path: str, *, body: Any = None, **names: Any) -> None:
        """Sends a request whose answer is not needed."""
        self.ask(method, path, type(None), body=body, **names)

    def page(
        self, path: str, type_: type[T], page: PageRange, *, query: Query | None = None, **names: Any
    ) -> ListPage[T]:
        asked = {**(query or {}), "limit": page.limit, "cursor": page.cursor}
        found: ListPage[T] = self.get(path, ListPage[type_], query=asked, **names)  # type: ignore[valid-type]
        return found

    def walk(self, path: str, type_: type[T], **names: Any) -> Iterator[T]:
        """Yields the items of all pages of a list."""
        page = LONGEST_PAGE
        while True:
            found = self.page(path, type_, page, **names)
            yield from found.items
            if found.next_cursor is None:
                return
            page = page._replace(cursor=found.next_cursor)

    def every(self, path: str, type_: type[T], **names: Any) -> list[T]:
        """Returns a list with all its pages."""
        return list(self.walk(path, type_, **names))

    def stream(self, path: str, *, query: Query | None = None, wait_s: float = 0, **names: Any) -> Iterator[bytes]:
        """Yields an answer of any length, in pieces as they come."""
        request: Request[Reply] = Request("GET", path, Opened(bytes), names, query or {}, streamed=True, wait_s=wait_s)
        with _as_remote_errors(self.url):
            response = self._client.run(request).response
            try:
                yield from response.iter_bytes()
            finally:
                response.close()

    def put_edited(self, path: str, type_: type[T], make: Callable[[T | None], Any], **names: Any) -> tuple[str, T]:
        """Puts what ``make`` returns for the stored view, unless that changes meanwhile.

        Returns disposition and new view.
        """

        def attempt() -> tuple[str, T]:
            there = self.find(path, type_, **names)
            body = make(there.view if there else None)
            guard = {"If-Match": there.etag} if there else {"If-None-Match": "*"}
            put = self.exchange("PUT", path, type_, body=body, headers=guard, **names)
            if there is None:
                return "created", put.view
            return "unchanged" if there.etag == put.etag else "replaced", put.view

        return edit(attempt)


def edit(attempt: Callable[[], T]) -> T:
    """Makes a change that begins with a read, and repeats it if somebody else was faster.

    Returns the attempt's result.
    """
    for _ in range(EDITS_MAX):
        try:
            return attempt()
        except RemoteError as error:
            if error.code != "revision_mismatch":
                raise
            lost = error
    raise lost


class _ViewReader(Generic[T]):
    """Decodes an answer into a view, with its status and ETag."""

    def __init__(self, type_: type[T]) -> None:
        self._type = type_

    def read(self, reply: Reply) -> RemoteAnswer[T]:
        view = msgspec.json.decode(reply.body, type=self._type) if reply.body else None
        return RemoteAnswer(view, reply.status, reply.headers.get("etag"))  # type: ignore[arg-type]


@contextmanager
def _as_remote_errors(url: str) -> Iterator[None]:
    """Turns errors of the client into RemoteError, which says what to do next."""
    try:
        yield
    except Refusal as error:
        raise RemoteError(_refusal(error, url)) from error
    except NoAnswer as error:
        raise RemoteError(_no_answer(error, url)) from error
    except httpx.TransportError as error:
        detail = f"The answer of {url} broke off: {error}. Try again."
        raise RemoteError(CliProblem("The answer broke off", detail, "unreachable")) from error
    except (ClientError, msgspec.MsgspecError) as error:
        detail = f"{url} answered something else than Paceline does: {error}. Is --url right, and of this version?"
        raise RemoteError(CliProblem("Not an answer of Paceline", detail, "unexpected_answer")) from error
    except (ValueError, OSError) as error:
        raise RemoteError(
            CliProblem("Wrong usage", f"{error}. Look at --url, --token and --ca-file.", "usage")
        ) from error


def _refusal(error: Refusal, url: str) -> CliProblem:
    document = error.document
    if document.code.startswith("http_"):
        detail = f"{url} answered {error.status}, but not as Paceline does. Is --url right?"
        return CliProblem("Not an answer of Paceline", detail, "unexpected_answer")
    detail = document.detail
    if document.code == "unauthenticated":
        detail = (
            f"{url} does not know this token: it is wrong, was revoked, or its user is disabled. Give another one:"
            " --token-file FILE, PACELINE_TOKEN, or paceline login."
        )
    errors = tuple({"pointer": field.pointer, "detail": field.detail} for field in document.errors)
    figures: tuple[tuple[str, int | str], ...] = ()
    if document.cost is not None and document.credits_left is not None and document.resets_at is not None:
        resets_at = to_text(to_ms(document.resets_at))
        figures = (("cost", document.cost), ("credits_left", document.credits_left), ("resets_at", resets_at))
        figures += (("refusal", document.refusal),) if document.refusal else ()
    return CliProblem(document.title, detail, document.code, errors, figures)


def _no_answer(error: NoAnswer, url: str) -> CliProblem:
    cause: BaseException | None = error.__cause__
    while cause is not None and not isinstance(cause, ssl.SSLError):
        cause = cause.__cause__ or cause.__context__
    if isinstance(cause, ssl.SSLCertVerificationError):
        detail = (
            f"The certificate of {url} is not trusted: {cause.verify_message}. If it is Paceline's own, name its CA"
            " file: --ca-file FILE, or PACELINE_CA_FILE."
        )
        return CliProblem("The certificate is not trusted", detail, "untrusted")
    if isinstance(cause, ssl.SSLError):
        detail = f"{url} does not speak TLS: {cause.reason or cause}. Should --url begin with http:// ?"
        return CliProblem("No TLS", detail, "untrusted")
    if error.may_have_counted:
        detail = (
            f"The connection to {url} ended before the answer; the change may have been made. Look, then try again."
        )
        return CliProblem("No answer", detail, "unreachable")
    detail = f"{url} cannot be reached ({error.__cause__}). Is paceline up running there, and is --url right?"
    return CliProblem("Paceline cannot be reached", detail, "unreachable")
