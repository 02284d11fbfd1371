"""Regular expressions that users write, in the syntax of RE2: search time is linear in the length of the text.

RE2 has neither backreferences nor look-around, which is why no pattern can make it go back and try again.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

PATTERN_CHARS_MAX = 1_000
PROGRAM_MAX = 1_500
"""Maximum number of instructions of a compiled pattern: a search takes at most this number times the text's length."""
MEMORY_BYTES_MAX = 1_048_576
COMPILED_KEPT_MAX = 128
_ABSENT = "RE2 has no look-around and no backreferences"
_HINTS = {"invalid perl operator": f"; {_ABSENT}", "invalid escape sequence": f"; {_ABSENT}"}


def pattern_problem(pattern: str) -> str | None:
    """Return why this cannot be a pattern, with the position of the mistake; None if it can."""
    if len(pattern) > PATTERN_CHARS_MAX:
        return f"at most {PATTERN_CHARS_MAX} characters"
    if "\x00" in pattern:
        return "a NUL character is not allowed"
    try:
        compiled = _compile(pattern)
    except ValueError as error:
        return str(error)
    if compiled.programsize > PROGRAM_MAX:
        return f"too large: it needs {compiled.programsize} steps, at most {PROGRAM_MAX}; repeat less, or name fewer"
    return None


def finds(pattern: str, text: bytes) -> bool:
    """Return whether a valid pattern is found in the text, which is UTF-8.

    Bytes that are not UTF-8 match no character.
    """
    return _compile(pattern).search(text) is not None


@lru_cache(COMPILED_KEPT_MAX)
def _compile(pattern: str) -> Any:
    """Return the compiled pattern, or raise ValueError that says what is wrong and where.

    Memoised: the same check runs many times.
    """
    import re2  # noqa: PLC0415 - only those who use a pattern pay for it

    options = re2.Options()
    options.max_mem = MEMORY_BYTES_MAX
    options.never_capture = True
    options.log_errors = False
    try:
        return re2.compile(pattern, options)
    except re2.error as error:
        cause = error.args[0]
        raise ValueError(_words(pattern, cause.decode("utf-8", "replace"))) from None


def _words(pattern: str, cause: str) -> str:
    kind, _, part = cause.partition(": ")
    if kind.startswith("pattern too large"):
        return "too large; repeat less, or name fewer characters"
    return f"not a regular expression: {cause} (at character {_position(pattern, part) + 1}){_HINTS.get(kind, '')}"


def _position(pattern: str, part: str) -> int:
    """Return where the mistake is.

    RE2 quotes the wrong part, or all of the pattern if its parentheses do not pair.
    """
    if part and part != pattern:
        return max(pattern.find(part), 0)
    opened: list[int] = []
    escaped = in_class = False
    for position, char in enumerate(pattern):
        if escaped or char == "\\":
            escaped = not escaped
        elif in_class:
            in_class = char != "]"
        elif char == "[":
            in_class = True
        elif char == "(":
            opened.append(position)
        elif char == ")":
            if not opened:
                return position
            opened.pop()
    return opened[-1] if opened else 0
