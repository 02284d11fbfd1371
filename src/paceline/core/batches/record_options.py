"""What a record may say beyond its provider, endpoint and body; most say nothing, and then nothing is stored."""

from __future__ import annotations

from functools import lru_cache

import msgspec


class RecordOptions(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """``templated``: endpoint and body have braces that are filled in before each call.

    Records that were stored before there were placeholders have none, whatever their texts hold: they are sent as
    they are.
    """

    templated: bool = False


NO_OPTIONS = RecordOptions()
_OPTIONS = msgspec.json.Decoder(RecordOptions)
_encode = msgspec.json.Encoder(order="sorted").encode


def options_text(options: RecordOptions) -> str | None:
    """As the options are stored; None if there are none."""
    return None if options is NO_OPTIONS or options == NO_OPTIONS else _encode(options).decode()


@lru_cache(maxsize=4_096)
def _parsed(text: str) -> RecordOptions:
    return _OPTIONS.decode(text)


def parse_options(text: str | None) -> RecordOptions:
    """The inverse of ``options_text``."""
    return NO_OPTIONS if text is None else _parsed(text)
