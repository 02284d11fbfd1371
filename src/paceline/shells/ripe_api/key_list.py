"""The key that was sent, as RIPE shows keys: with a UUID, for clients that accept no other form."""

from __future__ import annotations

from typing import Any

from paceline.core.jobs.atlas import GRANTS
from paceline.errors import NotFound
from paceline.shells.api.http.answers import ApiAnswer, json_answer
from paceline.shells.ripe_api.call import CompatibleCall
from paceline.shells.ripe_api.keys import find_secret
from paceline.steps.jobs.compatible_keys import token_of, uuid_of


async def list_keys(call: CompatibleCall) -> ApiAnswer:
    """Lists only the key that was sent, not the user's other keys."""
    owner = call.owner
    token = await call.api.read(token_of, call.api.store, find_secret(call.headers, call.query))
    if token is None or token.user != owner:
        raise NotFound("Not found.")
    document: dict[str, Any] = {
        "uuid": uuid_of(token, secret_key=call.api.system.secret_key),
        "valid_from": None,
        "valid_to": None,
        "enabled": True,
        "is_active": True,
        "created_at": token.created_ms // 1_000,
        "label": token.label,
        "type": "key",
        "grants": [{"permission": name, "target": None} for name in GRANTS],
    }
    return json_answer(200, {"count": 1, "next": None, "previous": None, "results": [document]})
