"""Streamed results cut into lines; each line is a JSON object of the one measurement that was asked for."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

LINE_BYTES_MAX = 4_194_304


class _Result(msgspec.Struct):
    """The one field that is kept of a line. The whole line is parsed, so that half a line is noticed."""

    msm_id: int


_RESULT = msgspec.json.Decoder(_Result)


class Lines:
    """Passes whole lines to ``take``.

    Ends the transfer at the first line that is no result, or after ``bytes_max`` bytes.
    """

    def __init__(self, take: Callable[[bytes], None], *, measurement_id: int, bytes_max: int) -> None:
        self._take = take
        self._id = measurement_id
        self._bytes_max = bytes_max
        self._rest = b""
        self.count = 0
        self.bytes_read = 0
        """Bytes of the lines that were passed on."""
        self.full = False
        self.problem = ""
        self.error: BaseException | None = None
        """Error of ``take``. It cannot pass through libcurl, so the caller raises it after the transfer."""

    def add(self, piece: bytes) -> int | None:
        """Take the next piece of the answer. Return None to let libcurl go on, 0 to end the transfer."""
        *lines, self._rest = (self._rest + piece).split(b"\n")
        if not all(self._hand_on(line) for line in lines):
            return 0
        if len(self._rest) > LINE_BYTES_MAX:
            self.problem = f"RIPE sent a result of more than {LINE_BYTES_MAX} bytes"
            return 0
        return None

    def finish(self) -> None:
        """Pass on the last line, which may lack its line end. Called after the whole answer."""
        if not (self.problem or self.full or self.error):
            self._hand_on(self._rest)
        self._rest = b""

    def _hand_on(self, line: bytes) -> bool:
        line = line.strip()
        if not line:
            return True
        try:
            of = _RESULT.decode(line).msm_id
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            self.problem = f"RIPE sent something that is no result, after {self.count} results"
            return False
        if of != self._id:
            self.problem = f"RIPE sent a result of another measurement, after {self.count} results"
            return False
        if self.bytes_read + len(line) + 1 > self._bytes_max:
            self.full = True
            return False
        try:
            self._take(line)
        except BaseException as error:  # noqa: BLE001 - raised again by the caller
            self.error = error
            return False
        self.count += 1
        self.bytes_read += len(line) + 1
        return True
