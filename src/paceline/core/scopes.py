"""Scopes of tokens: a token that may do less than its user, for a program that needs no more."""

from __future__ import annotations

from typing import Literal

from paceline.core.ids import id_problem
from paceline.errors import FieldProblem

ScopeKind = Literal["read", "checker", "worker"]
WORKER = "worker:"
SCOPE_RULE = '"read", "checker", or "worker:" and a provider\'s id'
SCOPE_PATTERN = r"(read|checker|worker:[A-Za-z0-9][A-Za-z0-9._:@+=~-]{0,127})"


def scope_problem(scope: str, pointer: str) -> FieldProblem | None:
    """Return why this cannot be a scope, or None. An empty scope lets a token do all that its user may."""
    if scope in ("", "read", "checker"):
        return None
    if scope.startswith(WORKER) and id_problem(scope.removeprefix(WORKER), pointer) is None:
        return None
    return FieldProblem(pointer, f"use {SCOPE_RULE}; leave it out for a token that may do all that its user may")


def scope_kind(scope: str) -> ScopeKind | None:
    """Return the kind of the scope; None: the token has no scope."""
    match scope:
        case "":
            return None
        case "read":
            return "read"
        case "checker":
            return "checker"
        case _:
            return "worker"


def worker_provider(scope: str) -> str | None:
    """Return the provider whose runs a worker's token is for; None: it is not a worker's."""
    return scope.removeprefix(WORKER) if scope.startswith(WORKER) else None
