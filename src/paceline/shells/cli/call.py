"""How a command runs: it parses its options, calls one function on the open store, and emits the answer."""

from __future__ import annotations

import functools
import inspect
import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Concatenate, NamedTuple, ParamSpec, TypeVar, get_type_hints

import typer

from paceline.errors import InvalidInput, NoStore, StoreUnavailable
from paceline.shells.cli.options import ConfigOption, JsonOption, StoreOption
from paceline.shells.cli.output import print_note
from paceline.steps import access

if TYPE_CHECKING:  # both are slow to import, and `--help` needs neither
    from paceline.config import Settings
    from paceline.wiring import System

T = TypeVar("T")
P = ParamSpec("P")


class Call(NamedTuple):
    """The options that every command takes, before or after its name."""

    config: Path | None = None
    store: str | None = None
    as_json: bool = False

    def with_later(self, later: Call) -> Call:
        """Returns the options with those given after the command's name in front."""
        return Call(later.config or self.config, later.store or self.store, later.as_json or self.as_json)

    def settings(self, **flags: Any) -> Settings:
        from paceline.config import load_settings

        return load_settings(self.config, store=self.store, **flags)

    def on_store(self, act: Callable[Concatenate[System, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Calls the one function that a command is about on the store there is, and returns its answer."""
        with self.system() as system:
            return act(system, *args, **kwargs)

    def on_store_or_new(self, act: Callable[Concatenate[System, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        """The same for a command that may be the first to declare something: it makes a store if there is none."""
        with self._system_or_new() as system:
            return act(system, *args, **kwargs)

    @contextmanager
    def system(self, settings: Settings | None = None) -> Iterator[System]:
        """The store there is, open for as long as the command runs. NoStore says where one might be."""
        settings = self._there(settings or self.settings())
        try:
            with _opened(settings) as system:
                yield system
        except NoStore:
            from paceline.shells.cli.places import no_store_text

            raise NoStore(no_store_text(settings.store)) from None

    @contextmanager
    def new_system(self, settings: Settings | None = None) -> Iterator[System]:
        """The configured store, made if there is none: for the few commands that begin one."""
        try:
            with _opened(settings or self.settings()) as system:
                yield system
        except NoStore as error:  # on AWS it is made by another command, which the words name
            raise StoreUnavailable(error.detail) from error

    def _system_or_new(self) -> AbstractContextManager[System]:
        from paceline.shells.cli.places import demo_store
        from paceline.wiring import has_store

        settings = self.settings()
        there = any(has_store(url) for url in (settings.store, demo_store(settings.store)))
        return self.system(settings) if there and self.store is None else self.new_system(settings)

    def _there(self, settings: Settings) -> Settings:
        """Where there is nothing but a demo, and no --store was given, the demo's store is meant."""
        from paceline.shells.cli.places import demo_store, no_store_text
        from paceline.wiring import has_store

        if has_store(settings.store):
            return settings
        demo = demo_store(settings.store)
        if self.store is not None or not has_store(demo):
            raise NoStore(no_store_text(settings.store))
        print_note(f"This is about the demo ({demo}): there is no {settings.store}.")
        return settings.model_copy(update={"store": demo})


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

    A parameter whose type is a NamedTuple stands for one option per field. ``fixed`` arguments are no options: two
    commands such as pause and resume are then one function, each with its own help text.
    """

    def register(function: Callable[..., int | None]) -> Callable[..., int | None]:
        signature = inspect.signature(function, eval_str=True)
        signature = signature.replace(parameters=[p for p in signature.parameters.values() if p.name not in fixed])
        groups = {p.name: p.annotation for p in signature.parameters.values() if _is_group(p.annotation)}

        @functools.wraps(function)
        def run(ctx: typer.Context, *, config: Path | None, store: str | None, as_json: bool, **own: Any) -> int | None:
            earlier = ctx.obj if isinstance(ctx.obj, Call) else Call()
            for group, type_ in groups.items():
                own[group] = type_(**{field: own.pop(field) for field in type_._fields})
            return function(earlier.with_later(Call(config, store, as_json)), **own, **fixed)

        offered = _offered(signature)
        run.__signature__ = offered  # type: ignore[attr-defined]  # how a decorator tells what it takes
        run.__annotations__ = {name: parameter.annotation for name, parameter in offered.parameters.items()}
        app.command(name, help=help_text)(run)
        return function

    return register


def owner_id(system: System, user: str | None) -> str:
    """The user a command is about: the one named, else $PACELINE_USER, else the only one there is."""
    if named := user or os.environ.get("PACELINE_USER"):
        return access.get_user(system.store, named).id
    users = system.store.users(after="", limit=2)
    if len(users) == 1:
        return users[0].id
    if not users:
        raise InvalidInput("There is no user yet. Add one: paceline user add NAME")
    raise InvalidInput("There are several users. Name one with --user, or set PACELINE_USER.")


def _is_group(annotation: Any) -> bool:
    return isinstance(annotation, type) and hasattr(annotation, "_fields") and annotation is not Call


def _offered(own: inspect.Signature) -> inspect.Signature:
    """The context, what the command declares with its groups spread out, and the shared options."""
    declared: list[inspect.Parameter] = []
    for parameter in list(own.parameters.values())[1:]:
        group = parameter.annotation if _is_group(parameter.annotation) else None
        declared += _spread(group) if group else [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY)]
    shared = [
        _option("config", ConfigOption, None),
        _option("store", StoreOption, None),
        _option("as_json", JsonOption, False),
    ]
    context = inspect.Parameter("ctx", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=typer.Context)
    return own.replace(parameters=[context, *declared, *shared], return_annotation=int | None)


def _spread(group: Any) -> list[inspect.Parameter]:
    hints = get_type_hints(group, include_extras=True)
    return [_option(name, hints[name], group._field_defaults[name]) for name in group._fields]


def _option(name: str, annotation: Any, default: Any) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, annotation=annotation, default=default)
