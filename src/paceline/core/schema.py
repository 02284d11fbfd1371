"""Bounds of a field that the JSON schema shows. Core's own validation checks them, with texts that say what to do."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import Meta

from paceline.core.ids import ID_PATTERN, ID_RULE
from paceline.core.targets import HOST_CHARS_MAX

DURATION_PATTERN = "^[0-9]{1,12}(ms|s|m|h|d)$"


def shown(description: str | None = None, **keywords: Any) -> Meta:
    """Return an annotation with keywords of JSON Schema, which msgspec writes into the schema and does not check."""
    return Meta(description=description, extra_json_schema=keywords or None)


def sentence(rule: str) -> str:
    """Return a rule of core as a sentence."""
    return f"{rule[0].upper()}{rule[1:]}."


Date = Annotated[str, shown(format="date")]
Duration = Annotated[str, shown(pattern=DURATION_PATTERN)]
Host = Annotated[str, shown(minLength=1, maxLength=HOST_CHARS_MAX)]
Id = Annotated[str, shown(sentence(ID_RULE), pattern=f"^{ID_PATTERN}$")]
Instant = Annotated[str, shown("ISO 8601 in UTC with Z.", format="date-time")]
Port = Annotated[int, shown(minimum=1, maximum=65_535)]
