"""The RIPE Atlas API through one libcurl handle: one guarded call at a time, each with a deadline."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Sequence
from email.utils import parsedate_to_datetime
from ipaddress import ip_address, ip_network
from pathlib import Path
from typing import Any, NamedTuple, TypeVar
from urllib.parse import quote, urlsplit

import msgspec
import pycurl

from paceline.adapters.providers import atlas_documents
from paceline.adapters.providers.atlas_lines import Lines
from paceline.adapters.providers.authorities import Authorities, find_authorities
from paceline.adapters.providers.calls import parse_retry_after_ms
from paceline.adapters.providers.faults import fault_words
from paceline.adapters.providers.guard import AddressGuard, Network
from paceline.adapters.providers.transfer import Transfer
from paceline.core.durations import format_duration
from paceline.core.instants import to_ms
from paceline.core.jobs import atlas
from paceline.core.jobs.atlas_replies import Credits, Delivered, KeyCheck, ListedMeasurement, Stopped, Unanswered
from paceline.core.jobs.measurement import Measurement
from paceline.core.leases import POST_MS_MAX

API = "/api/v2"
TIMEOUT_MS = POST_MS_MAX
QUESTION_MS = 120_000
"""Time limit of one question, all its pages together."""
RESULTS_TIMEOUT_MS = 600_000
ANSWER_BYTES_MAX = 8_388_608
PAGE_SIZE = 500
PAGES_MAX = 40
"""RIPE lists at most 20,000 measurements in pages."""
IDS_CHARS_MAX = 5_000
STOPPING = "Paceline was stopping"
_FIELDS = "id,status,description,tags,stop_time,probes_scheduled,credits_per_result,estimated_results_per_day"
_RUNNING = ",".join(str(status) for status in sorted(atlas.RUNNING))
_IN_FLIGHT = f"status__in={_RUNNING}&page_size=1"
_KEY = re.compile(r"[!-~]{1,256}")
_NO_MEASUREMENT = Measurement(definitions=(), probes=())
_LOCAL = ("127.0.0.1/32", "::1/128")

T = TypeVar("T")


class _Reply(NamedTuple):
    """A reply. If it is not whole, ``status`` is None and ``fault`` says why. ``arrived``: whether a byte was sent."""

    status: int | None
    body: bytes = b""
    retry_after: str = ""
    fault: str = ""
    arrived: bool = True


_UNUSABLE = _Reply(401, b'{"error": {"detail": "The API key has characters that no key has"}}', arrived=False)


class RipeAtlas:
    """Fills ``ports.Atlas``. ``own`` are the endpoints of Paceline's API, which ``url`` must not lead to."""

    def __init__(
        self,
        url: str,
        *,
        allow: Sequence[Network] = (),
        own: Sequence[tuple[str, int]] = (),
        ca_file: Path | None = None,
        timeout_ms: int = TIMEOUT_MS,
    ) -> None:
        self._base = url.rstrip("/").removesuffix(API) + API
        self._timeout_ms = timeout_ms
        self._transfer = _AtlasTransfer(AddressGuard([*allow, *_named_by(url)], own=own), find_authorities(ca_file))
        self._busy = False

    def create(self, key: str, measurement: Measurement, body: bytes) -> atlas.Answer:
        reply = self._ask(key, "/measurements/", "POST", body=body)
        if reply.status is None and not reply.arrived:
            return atlas.Refused("global", f"RIPE could not be reached: {reply.fault}")
        return atlas.read_answer(
            measurement, status=reply.status, body=reply.body, retry_after=reply.retry_after, fault=reply.fault
        )

    def find_by_marker(self, key: str, tag: str) -> tuple[ListedMeasurement, ...] | Unanswered:
        return self._marked(key, tag, "")

    def running_by_marker(self, key: str, tag: str) -> tuple[ListedMeasurement, ...] | Unanswered:
        found = self._marked(key, tag, f"&status__in={_RUNNING}")
        if isinstance(found, atlas.Refused | atlas.Lost):
            return found
        # RIPE ignores a filter that it does not know, so the rows are filtered again.
        return tuple(one for one in found if one.status in atlas.RUNNING)

    def statuses(self, key: str, ids: Sequence[int]) -> dict[int, ListedMeasurement] | Unanswered:
        until_s = time.monotonic() + QUESTION_MS / 1_000
        found: dict[int, ListedMeasurement] = {}
        for part in _id_lists(sorted(set(ids))):
            query = f"id__in={part}&fields={_FIELDS}&page_size={PAGE_SIZE}"
            page = _decoded(self._ask(key, f"/measurements/?{query}", until_s=until_s), atlas_documents.PAGE)
            if isinstance(page, atlas.Refused | atlas.Lost):
                return page
            if problem := atlas_documents.filter_problem(page, "id__in"):
                return atlas.Lost(problem)
            found |= {one.id: atlas_documents.listed_of(one) for one in page.results}
        wanted = set(ids)
        return {id_: one for id_, one in found.items() if id_ in wanted}

    def in_flight(self, key: str) -> int | Unanswered:
        page = _decoded(self._ask(key, f"/measurements/my/?{_IN_FLIGHT}"), atlas_documents.PAGE)
        if isinstance(page, atlas.Refused | atlas.Lost):
            return page
        problem = atlas_documents.filter_problem(page, "status__in")
        if problem or any(one.status.id not in atlas.RUNNING for one in page.results):
            return atlas.Lost(problem or "RIPE counted measurements that do not run")
        return page.count

    def credits(self, key: str) -> Credits | Unanswered:
        document = _decoded(self._ask(key, "/credits/"), atlas_documents.CREDITS)
        if isinstance(document, atlas.Refused | atlas.Lost):
            return document
        return Credits(
            balance=int(document.current_balance),
            spent_day=int(document.past_day_credits_spent),
            results_day=int(document.past_day_measurement_results),
            limit_day=None if document.max_daily_credits is None else int(document.max_daily_credits),
        )

    def stop(self, key: str, measurement_id: int) -> Stopped | Unanswered:
        reply = self._ask(key, f"/measurements/{measurement_id:d}/", "DELETE")
        if reply.status in (200, 202, 204):
            return Stopped()
        return _unanswered(reply, about_one=True)

    def results(
        self, key: str, measurement_id: int, take: Callable[[bytes], None], *, bytes_max: int
    ) -> Delivered | Unanswered:
        lines = Lines(take, measurement_id=measurement_id, bytes_max=bytes_max)
        path = f"/measurements/{measurement_id:d}/results/?format=txt"
        reply = self._ask(key, path, lines=lines, timeout_ms=RESULTS_TIMEOUT_MS)
        if lines.error is not None:
            raise lines.error
        if lines.full:
            return Delivered(lines.count, lines.bytes_read, whole=False)
        if reply.status == 200:
            lines.finish()
            if lines.error is not None:
                raise lines.error
        if lines.problem:
            return atlas.Lost(lines.problem)
        if reply.status == 200:
            return Delivered(lines.count, lines.bytes_read, whole=True)
        return _unanswered(reply, about_one=True)

    def probes(self, ids: Sequence[int]) -> list[dict[str, Any]] | Unanswered:
        wanted = sorted(set(ids))
        assert len(wanted) <= PAGE_SIZE
        part = ",".join(f"{id_:d}" for id_ in wanted)
        page = _decoded(self._ask("", f"/probes/?id__in={part}&page_size={PAGE_SIZE}"), atlas_documents.PROBES)
        if isinstance(page, atlas.Refused | atlas.Lost):
            return page
        return [one for one in page.results if one.get("id") in wanted]

    def participants(self, key: str, measurement_id: int) -> list[int] | Unanswered:
        found = _decoded(
            self._ask(key, f"/measurements/{measurement_id:d}/?fields=probes"), atlas_documents.PARTICIPANTS
        )
        return found if isinstance(found, atlas.Refused | atlas.Lost) else [one.id for one in found.probes or ()]

    def check_key(self, key: str) -> KeyCheck | Unanswered:
        statuses: dict[str, int] = {}
        words: list[str] = []
        grants: frozenset[str] | None = None
        for read in atlas.READS:
            query = f"?{_IN_FLIGHT}" if read == "/measurements/my/" else ""
            reply = self._ask(key, read + query)
            answer = _decoded(reply, _TRIED[read])
            statuses[read] = reply.status or 0
            if isinstance(answer, atlas.Refused) and answer.scope == "key":
                # RIPE answers 403 to some keys that are entirely invalid, as it does to a missing permission.
                statuses[read] = 401 if "API key" in answer.reason else statuses[read]
                words += [answer.reason] if read in atlas.PERMISSIONS else []
            elif isinstance(answer, atlas.Refused | atlas.Lost):
                if read in atlas.PERMISSIONS:
                    return answer
            elif read == "/keys/":
                grants = atlas_documents.grants_of(answer, key)
        trials = (
            self._trials(key) if grants is None and all(statuses[read] == 200 for read in atlas.PERMISSIONS) else {}
        )
        problems = atlas.key_problems(statuses, grants, trials)
        return KeyCheck(
            tuple(problems), tuple(dict.fromkeys(words)), tuple(atlas.unverified_permissions(grants, trials))
        )

    def _trials(self, key: str) -> dict[str, int]:
        """Return RIPE's status codes for requests that need a permission and can have no effect.

        RIPE checks the permissions of a key before the rest of a request.
        """
        create = self._ask(key, "/measurements/", "POST", body=b'{"definitions": [], "probes": []}')
        stop = self._ask(key, "/measurements/0/", "DELETE")
        return dict(zip(atlas.GRANTS, (create.status or 0, stop.status or 0), strict=True))

    def interrupt(self) -> None:
        self._transfer.halted = True

    def close(self) -> None:
        assert not self._busy
        self._transfer.curl.close()

    def _marked(self, key: str, tag: str, more: str) -> tuple[ListedMeasurement, ...] | Unanswered:
        """Read all pages by their number: a link in an answer could lead the key to another host."""
        until_s = time.monotonic() + QUESTION_MS / 1_000
        query = f"tags={quote(tag, safe='')}{more}&fields={_FIELDS}&sort=id&page_size={PAGE_SIZE}"
        found: dict[int, ListedMeasurement] = {}
        for number in range(1, PAGES_MAX + 1):
            path = f"/measurements/my/?{query}&page={number}"
            page = _decoded(self._ask(key, path, until_s=until_s), atlas_documents.PAGE)
            if isinstance(page, atlas.Refused | atlas.Lost):
                return page
            found |= {
                one.id: atlas_documents.listed_of(one) for one in page.results if atlas_documents.carries(one, tag)
            }
            if page.next is None:
                return tuple(found[id_] for id_ in sorted(found))
        return atlas.Lost(f"RIPE lists more than {PAGES_MAX * PAGE_SIZE} measurements for one tag")

    def _ask(
        self,
        key: str,
        path: str,
        method: str = "GET",
        *,
        body: bytes | None = None,
        lines: Lines | None = None,
        timeout_ms: int = 0,
        until_s: float | None = None,
    ) -> _Reply:
        """Make one request and return its reply. With an empty key it is made without authorization."""
        assert not self._busy
        if key and not _KEY.fullmatch(key):
            return _UNUSABLE
        if self._transfer.halted:
            return _Reply(None, fault=STOPPING, arrived=False)
        timeout_ms = timeout_ms or self._timeout_ms
        if until_s is not None:
            timeout_ms = min(timeout_ms, int((until_s - time.monotonic()) * 1_000))
        if timeout_ms <= 0:
            words = f"RIPE took more than {format_duration(QUESTION_MS)} to answer in full"
            return _Reply(None, fault=words, arrived=False)
        self._busy = True
        try:
            self._transfer.prepare(method, self._base + path, key=key, body=body, lines=lines, timeout_ms=timeout_ms)
            reply = self._transfer.perform(timeout_ms)
        finally:
            self._transfer.forget()
            self._busy = False
        if method == "GET" and reply.status == 200:
            return reply  # parsed and never quoted; and /keys/ lists the key itself
        return reply._replace(body=_struck_out(reply.body, key))


class _AtlasTransfer(Transfer):
    """The libcurl handle, and the parts of a request that are special to RIPE."""

    __slots__ = ("halted", "lines")

    def __init__(self, guard: AddressGuard, authorities: Authorities) -> None:
        self.halted = False
        self.lines: Lines | None = None
        super().__init__(guard, authorities, [])

    def prepare(
        self, method: str, url: str, *, key: str, body: bytes | None, lines: Lines | None, timeout_ms: int
    ) -> None:
        self.clear()
        self.reset()
        self.keep_head()
        self.keeps_body = True
        self.bytes_max = ANSWER_BYTES_MAX
        self.lines = lines
        self.aim(url, format_duration(timeout_ms))
        set_option = self.curl.setopt
        set_option(pycurl.HTTP_VERSION, pycurl.CURL_HTTP_VERSION_1_1)
        set_option(pycurl.NOPROGRESS, 0)
        set_option(pycurl.XFERINFOFUNCTION, self._look_up)
        headers = ["Accept: text/plain" if lines else "Accept: application/json", "Expect:"]
        headers += [f"Authorization: Key {key}"] if key else []
        if body is not None:
            headers.append("Content-Type: application/json")
            set_option(pycurl.POST, 1)
            set_option(pycurl.POSTFIELDS, body)
            # If a kept connection dies, libcurl sends the request again by itself, though the first may have arrived.
            set_option(pycurl.FRESH_CONNECT, 1)
        elif method != "GET":
            set_option(pycurl.CUSTOMREQUEST, method)
        set_option(pycurl.HTTPHEADER, headers)

    def perform(self, timeout_ms: int) -> _Reply:
        error = 0
        try:
            self.curl.perform()
        except pycurl.error as raised:
            error = raised.args[0]  # its text is not used: it may quote what was sent
        info = self.curl.getinfo
        arrived = info(pycurl.REQUEST_SIZE) > 0
        status = info(pycurl.RESPONSE_CODE) or None
        if self.capped and error == pycurl.E_WRITE_ERROR:
            if status is not None and 200 <= status < 300:
                return _Reply(None, fault=f"status {status}, then more than {ANSWER_BYTES_MAX} bytes")
            error = 0
        if error or status is None:
            return _Reply(None, fault=self._fault(error, status, timeout_ms), arrived=arrived)
        return _Reply(status, b"".join(self.pieces), _retry_after(self.head))

    def forget(self) -> None:
        """Remove the key and the answer from the handle."""
        self.lines = None
        self.clear()
        self.reset()

    def _fault(self, error: int, status: int | None, timeout_ms: int) -> str:
        if self.halted:
            return STOPPING
        if not error:
            return "the answer has no status"
        words = fault_words(self, error, timeout=format_duration(timeout_ms))
        return f"status {status}, then {words}" if status else words

    def _look_up(self, *_: int) -> int:
        """Callback of libcurl, once a second: a value other than 0 ends the transfer."""
        return int(self.halted)

    def _take_piece(self, piece: bytes) -> int | None:
        if self.lines is None or not self.head or self.head[0].split(b" ")[1:2] != [b"200"]:
            return super()._take_piece(piece)
        return self.lines.add(piece)


_TRIED: dict[str, msgspec.json.Decoder[Any]] = {
    "/credits/": atlas_documents.CREDITS,
    "/measurements/my/": atlas_documents.PAGE,
    "/keys/": atlas_documents.KEYS,
}


def _decoded(reply: _Reply, decoder: msgspec.json.Decoder[T]) -> T | Unanswered:
    if reply.status != 200:
        return _unanswered(reply)
    try:
        return decoder.decode(reply.body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        # The body is not quoted: a list of keys may be in it.
        return atlas.Lost("RIPE answered 200, and the answer cannot be read")


def _unanswered(reply: _Reply, *, about_one: bool = False) -> Unanswered:
    """Classify like ``read_answer``, except that a 404 about a single measurement is a real refusal."""
    status = reply.status
    if status is not None and 200 <= status < 300:
        return atlas.Lost(f"RIPE answered {status}, which is not expected here")
    answer = atlas.read_answer(
        _NO_MEASUREMENT, status=status, body=reply.body, retry_after=reply.retry_after, fault=reply.fault
    )
    assert isinstance(answer, atlas.Refused | atlas.Lost)
    if about_one and status == 404 and b'"error"' in reply.body and isinstance(answer, atlas.Refused):
        return answer._replace(scope="request")
    return answer


def _id_lists(ids: Sequence[int]) -> Iterator[str]:
    """Yield lists of ids, each as long as RIPE takes in one question, by number and by characters."""
    part: list[str] = []
    chars = 0
    for id_ in ids:
        text = str(id_)
        if part and (len(part) == PAGE_SIZE or chars + len(text) + 1 > IDS_CHARS_MAX):
            yield ",".join(part)
            part, chars = [], 0
        part.append(text)
        chars += len(text) + 1
    if part:
        yield ",".join(part)


def _named_by(url: str) -> list[Network]:
    """Return the networks that the URL itself allows: an address that the operator wrote there, or localhost.

    A host name allows none: it must lead to a public address.
    """
    host = urlsplit(url).hostname or ""
    if host == "localhost":
        return [ip_network(text) for text in _LOCAL]
    try:
        return [ip_network(str(ip_address(host)))]
    except ValueError:
        return []


def _struck_out(body: bytes, key: str) -> bytes:
    """Return the body with the key blanked out: a gateway's error page may repeat the request."""
    return re.sub(re.escape(key.encode()), b"***", body, flags=re.IGNORECASE) if key else body


def _retry_after(head: Sequence[bytes]) -> str:
    """Return Retry-After in whole seconds; empty if there is none.

    A date is compared with the date of the answer itself, so no clock has to be right.
    """
    fields: dict[str, str] = {}
    for line in head[1:]:
        name, _, value = line.decode("latin-1").partition(":")
        fields[name.strip().lower()] = value.strip()
    wanted = fields.get("retry-after", "")
    if not wanted or wanted.isdigit():
        return wanted
    try:
        sent_ms = to_ms(parsedate_to_datetime(fields.get("date", "")))
    except (ValueError, TypeError, IndexError, OverflowError):
        return ""
    pause_ms = parse_retry_after_ms(wanted, now_ms=sent_ms)
    return "" if pause_ms is None else str(-(-pause_ms // 1_000))
