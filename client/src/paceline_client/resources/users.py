"""Users and their tokens."""

from __future__ import annotations

from datetime import datetime

from paceline_client.answers import Json, Nothing, Page
from paceline_client.calls import Call, Pages, Plan, Resource, Transport, given, listing, operation
from paceline_client.models.service import Budget, NewToken, NewUser, Token, User, WebhookSecret
from paceline_client.models.states import Role

_USER = "/v1/users/{user}"


class Users(Resource[Transport]):
    """Users of the service. Most of it is for admins."""

    @operation
    def add(self, user: str, *, role: Role | None = None, daily_credits: int | None = None) -> Call[NewUser]:
        """Adds the user; the answer has the first token, shown this once."""
        body = given(id=user, role=role, daily_credits=daily_credits)
        return Call("POST", "/v1/users", Json(NewUser), body=body)

    @operation
    def get(self, user: str = "me") -> Call[User]:
        """The user."""
        return Call("GET", _USER, Json(User), {"user": user})

    @operation
    def patch(
        self,
        user: str,
        *,
        role: Role | None = None,
        daily_credits: int | None = None,
        disabled: bool | None = None,
    ) -> Call[User]:
        """Changes what is given; what is left out stays."""
        body = given(role=role, daily_credits=daily_credits, disabled=disabled)
        return Call("PATCH", _USER, Json(User), {"user": user}, body=body)

    @operation
    def remove(self, user: str) -> Call[None]:
        """Removes the user with tokens and monitors."""
        return Call("DELETE", _USER, Nothing(), {"user": user})

    @listing
    def list(self, *, limit: int | None = None) -> Pages[User]:
        """All users in order of id."""
        return Pages(Call("GET", "/v1/users", Json(Page[User])), limit)

    @operation
    def budget(self, user: str = "me") -> Call[Budget]:
        """The user's credits of the day."""
        return Call("GET", f"{_USER}/budget", Json(Budget), {"user": user})

    @operation
    def webhook_secret(self, user: str = "me") -> Plan[str]:
        """What the user's webhooks are signed with."""
        answer = yield from Call("GET", f"{_USER}/webhook-secret", Json(WebhookSecret), {"user": user})
        return answer.secret


class Tokens(Resource[Transport]):
    """Tokens of a user."""

    @operation
    def add(
        self, user: str = "me", *, label: str = "", scope: str | None = None, expires: datetime | str | None = None
    ) -> Call[NewToken]:
        """Makes a token; its secret is shown this once.

        ``scope``: ``read``, ``checker`` or ``worker:`` and a provider. ``expires``: an aware datetime, or ISO 8601.
        """
        body = given(label=label, scope=scope, expires=expires)
        return Call("POST", f"{_USER}/tokens", Json(NewToken), {"user": user}, body=body)

    @listing
    def list(self, user: str = "me", *, limit: int | None = None) -> Pages[Token]:
        """Tokens without their secrets."""
        return Pages(Call("GET", f"{_USER}/tokens", Json(Page[Token]), {"user": user}), limit)

    @operation
    def revoke(self, token_id: str, *, user: str = "me") -> Call[None]:
        """Revokes the token: it is refused from the next request on."""
        return Call("DELETE", f"{_USER}/tokens/{{token_id}}", Nothing(), {"user": user, "token_id": token_id})
