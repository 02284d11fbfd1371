"""Runs a command: parses its options, asks the store or another Paceline, and prints the answer."""

from __future__ import annotations

import functools
import inspect
import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, get_type_hints

import typer

from paceline.errors import InvalidInput, NoStore, StoreUnavailable
from paceline.shells.cli.logins import Login, RemoteOptions, find_login, named_url
from paceline.shells.cli.options import ConfigOption, JsonOption, StoreOption, UtcOption
from paceline.shells.cli.output import print_note
from paceline.shells.cli.text.examples import examples_of
from paceline.steps import access

if TYPE_CHECKING:  # slow imports that `--help` does not need
    from paceline.config import Settings
    from paceline.shells.cli.remote import Remote
    from paceline.wiring import System

T = TypeVar("T")


class CliCall(NamedTuple):
    """Options of every command. They stand before or after its name, those of ``remote`` only before it."""

    config: Path | None = None
    store: str | None = None
    as_json: bool = False
    remote: RemoteOptions = RemoteOptions()
    utc: bool = False

    def with_later(self, later: CliCall) -> CliCall:
        """Returns the options; those given after the command's name win."""
        return CliCall(
            later.config or self.config,
            later.store or self.store,
            later.as_json or self.as_json,
            self.remote,
            later.utc or self.utc,
        )

    def settings(self, **flags: Any) -> Settings:
        from paceline.config import load_settings

        return load_settings(self.config, store=self.store, **flags)

    def answer(self, on_store: Callable[[System], T], over_rest: Callable[[Remote], T]) -> T:
        """Asks the existing store, or another Paceline, for the answer of a command.

        Both functions return the same view, so that the output does not depend on who was asked.
        """
        return self._answer(self.system, on_store, over_rest)

    def answer_or_new(self, on_store: Callable[[System], T], over_rest: Callable[[Remote], T]) -> T:
        """Like ``answer``, for a command that may declare the first definition: makes a store if there is none."""
        return self._answer(self._system_or_new, on_store, over_rest)

    def answer_on_own(self, on_store: Callable[[System], T], over_rest: Callable[[Remote], T]) -> T:
        """Like ``answer_or_new``, but never takes the store of a demo: for a command that begins a store."""
        return self._answer(self.new_system, on_store, over_rest)

    def _answer(
        self,
        opened: Callable[[], AbstractContextManager[System]],
        on_store: Callable[[System], T],
        over_rest: Callable[[Remote], T],
    ) -> T:
        if (login := self._login()) is not None:
            return _ask(login, over_rest)
        with opened() as system:
            return on_store(system)

    def need_store(self) -> None:
        """Raises InvalidInput if another Paceline was named: this command works only on a store."""
        if self.store is None and (url := named_url(self.remote)) is not None:
            raise InvalidInput(
                f"This command needs the store and cannot be done over REST. Run it on the machine of {url}, without"
                " --url and PACELINE_URL, or name a store of this machine with --store."
            )

    @contextmanager
    def system(self, settings: Settings | None = None) -> Iterator[System]:
        """Opens the existing store while the command runs. Raises NoStore, which says where a store might be."""
        self.need_store()
        settings = self._there(settings or self.settings())
        try:
            with _opened(settings) as system:
                yield system
        except NoStore:
            from paceline.shells.cli.places import no_store_text

            raise NoStore(no_store_text(settings.store)) from None

    @contextmanager
    def new_system(self, settings: Settings | None = None) -> Iterator[System]:
        """Opens the configured store, and makes it if there is none: for the few commands that begin a store."""
        self.need_store()
        try:
            with _opened(settings or self.settings()) as system:
                yield system
        except NoStore as error:  # on AWS another command makes it; the error names that command
            raise StoreUnavailable(error.detail) from error

    def _system_or_new(self) -> AbstractContextManager[System]:
        from paceline.shells.cli.places import demo_store
        from paceline.wiring import has_store

        settings = self.settings()
        there = any(has_store(url) for url in (settings.store, demo_store(settings.store)))
        return self.system(settings) if there and self.store is None else self.new_system(settings)

    def _login(self) -> Login | None:
        """Returns the Paceline to ask over REST; None: the store is used. A store that is named wins over a login."""
        if self.store is not None:
            if self.remote.url is not None:
                raise InvalidInput("Give either --store or --url.")
            return None
        names_store = self.config is not None or "PACELINE_STORE" in os.environ
        if names_store and named_url(self.remote) is None:
            return None
        return find_login(self.remote, as_json=self.as_json)

    def _there(self, settings: Settings) -> Settings:
        """Returns the demo's store if there is no other and --store was not given."""
        from paceline.shells.cli.places import demo_store, no_store_text, refuse_unreadable
        from paceline.wiring import has_store

        if has_store(settings.store):
            return settings
        refuse_unreadable(settings.store)
        demo = demo_store(settings.store)
        if self.store is not None or not has_store(demo):
            raise NoStore(no_store_text(settings.store))
        print_note(f"Using the store of the demo ({demo}), because there is no {settings.store}.")
        return settings.model_copy(update={"store": demo})


def _ask(login: Login, over_rest: Callable[[Remote], T]) -> T:
    from paceline.shells.cli.remote import Remote

    remote = Remote(login)
    try:
        return over_rest(remote)
    finally:
        remote.close()


@contextmanager
def _opened(settings: Settings) -> Iterator[System]:
    from paceline.wiring import open_system

    system = open_system(settings)
    try:
        yield system
    finally:
        system.store.close()


def command(
    app: typer.Typer, name: str, *, help_text: str | None = None, **fixed: Any
) -> Callable[[Callable[..., int | None]], Callable[..., int | None]]:
    """Registers a command whose first parameter is the Call; the shared options are added to those it declares.

    A parameter whose type is a NamedTuple stands for one option per field, whose defaults are those of the type or of
    the parameter. ``fixed`` arguments are no options: two
    commands such as pause and resume are then one function, each with its own help text.
    """

    def register(function: Callable[..., int | None]) -> Callable[..., int | None]:
        signature = inspect.signature(function, eval_str=True)
        signature = signature.replace(parameters=[p for p in signature.parameters.values() if p.name not in fixed])
        groups = {p.name: p.annotation for p in signature.parameters.values() if _is_group(p.annotation)}

        @functools.wraps(function)
        def run(ctx: typer.Context, **own: Any) -> int | None:
            later = CliCall(own.pop("config"), own.pop("store"), own.pop("as_json"), utc=own.pop("utc"))
            earlier = ctx.obj if isinstance(ctx.obj, CliCall) else CliCall()
            for group, type_ in groups.items():
                own[group] = type_(**{field: own.pop(field) for field in type_._fields})
            return function(earlier.with_later(later), **own, **fixed)

        offered = _offered(signature)
        run.__signature__ = offered  # type: ignore[attr-defined]  # typer reads the options from here
        run.__annotations__ = {name: parameter.annotation for name, parameter in offered.parameters.items()}
        group = "" if app.info.name == "paceline" else f"{app.info.name} "
        app.command(name, help=help_text, epilog=examples_of(f"{group}{name}"))(run)
        return function

    return register


def owner_id(system: System, user: str | None) -> str:
    """Returns the user of a command: the one that is named, else $PACELINE_USER, else the only one."""
    if named := user or os.environ.get("PACELINE_USER"):
        return access.get_user(system.store, named).id
    users = system.store.users(after="", limit=2)
    if len(users) == 1:
        return users[0].id
    if not users:
        raise InvalidInput("There is no user yet. Add one: paceline user add NAME")
    raise InvalidInput("There are several users. Name one with --user, or set PACELINE_USER.")


def _is_group(annotation: Any) -> bool:
    return isinstance(annotation, type) and hasattr(annotation, "_fields") and annotation is not CliCall


def _offered(own: inspect.Signature) -> inspect.Signature:
    """Returns the signature: the context, the command's own options with groups spread out, and the shared options."""
    declared: list[inspect.Parameter] = []
    for parameter in list(own.parameters.values())[1:]:
        is_group = _is_group(parameter.annotation)
        declared += _spread(parameter) if is_group else [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY)]
    shared = [
        _option("config", ConfigOption, None),
        _option("store", StoreOption, None),
        _option("as_json", JsonOption, False),
        _option("utc", UtcOption, False),
    ]
    context = inspect.Parameter("ctx", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=typer.Context)
    return own.replace(parameters=[context, *declared, *shared], return_annotation=int | None)


def _spread(parameter: inspect.Parameter) -> list[inspect.Parameter]:
    group, chosen = parameter.annotation, parameter.default
    hints = get_type_hints(group, include_extras=True)
    defaults = group._field_defaults if chosen is inspect.Parameter.empty else chosen._asdict()
    return [_option(name, hints[name], defaults[name]) for name in group._fields]


def _option(name: str, annotation: Any, default: Any) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, annotation=annotation, default=default)
