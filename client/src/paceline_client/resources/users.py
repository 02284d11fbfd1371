"""Users and their tokens."""

from __future__ import annotations

from datetime import datetime

from paceline_client.answers import Json, Nothing, Page
from paceline_client.calls import Call, Pages, Plan, Resource, Transport, given, listing, operation
from paceline_client.models.service import Budget, NewToken, NewUser, Token, User, WebhookSecret
from paceline_client.models.states import Role

_USER = "/v1/users/{user}"


class Users(Resource[Transport]):
    """Users of the service. Most operations are for admins."""

    @operation
    def add(self, user: str, *, role: Role | None = None, daily_credits: int | None = None) -> Call[NewUser]:
        """Adds the user; the answer has the first token, which is shown only this once."""
        body = given(id=user, role=role, daily_credits=daily_credits)
        return Call("POST", "/v1/users", Json(NewUser), body=body)

    @operation
    def get(self, user: str = "me") -> Call[User]:
        """Returns the user."""
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
        """Changes the fields that are given."""
        body = given(role=role, daily_credits=daily_credits, disabled=disabled)
        return Call("PATCH", _USER, Json(User), {"user": user}, body=body)

    @operation
    def remove(self, user: str) -> Call[None]:
        """Removes the user with tokens and monitors."""
        return Call("DELETE", _USER, Nothing(), {"user": user})

    @listing
    def list(self, *, limit: int | None = None) -> Pages[User]:
        """Lists all users in order of id."""
        return Pages(Call("GET", "/v1/users", Json(Page[User])), limit)

    @operation
    def budget(self, user: str = "me") -> Call[Budget]:
        """Returns the user's credits of the day."""
        return Call("GET", f"{_USER}/budget", Json(Budget), {"user": user})

    @operation
    def webhook_secret(self, user: str = "me") -> Plan[str]:
        """Returns the secret that signs the user's webhooks."""
        answer = yield from Call("GET", f"{_USER}/webhook-secret", Json(WebhookSecret), {"user": user})
        return answer.secret


class Tokens(Resource[Transport]):
    """Tokens of a user."""

    @operation
    def add(
        self, user: str = "me", *, label: str = "", scope: str | None = None, expires: datetime | str | None = None
    ) -> Call[NewToken]:
        """Makes a token; its secret is shown only this once.

        ``scope``: ``read``, ``checker`` or ``worker:`` and a provider. ``expires``: an aware datetime, or ISO 8601.
        """
        body = given(label=label, scope=scope, expires=expires)
        return Call("POST", f"{_USER}/tokens", Json(NewToken), {"user": user}, body=body)

    @listing
    def list(self, user: str = "me", *, limit: int | None = None) -> Pages[Token]:
        """Lists tokens without their secrets."""
        return Pages(Call("GET", f"{_USER}/tokens", Json(Page[Token]), {"user": user}), limit)

    @operation
    def revoke(self, token_id: str, *, user: str = "me") -> Call[None]:
        """Revokes the token: the next request with it is refused."""
        return Call("DELETE", f"{_USER}/tokens/{{token_id}}", Nothing(), {"user": user, "token_id": token_id})
