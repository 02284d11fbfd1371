"""Numbered migrations, forward only, each in one transaction: an interrupted upgrade leaves the old schema whole."""

from __future__ import annotations

from importlib import resources

from paceline.adapters.sqlite.database import SqliteDatabase
from paceline.adapters.sqlite.identity import APPLICATION_ID
from paceline.errors import StoreTooNew, StoreUnavailable


def migrate(database: SqliteDatabase) -> int:
    """Bring the schema up to date and return its version."""
    scripts = _scripts()
    with database.writer() as connection:
        version, application = connection.pragma("user_version"), connection.pragma("application_id")
    if application not in (0, APPLICATION_ID):
        raise StoreUnavailable(f"{database.path} is a database of another program; check PACELINE_STORE.")
    if version > len(scripts):
        raise StoreTooNew(
            f"{database.path} has schema {version}, this version knows {len(scripts)}. Upgrade Paceline to open it."
        )
    for number in range(version + 1, len(scripts) + 1):
        with database.write() as connection:
            if connection.pragma("user_version") >= number:
                continue  # another process was faster
            connection.execute(scripts[number - 1])
            connection.pragma("application_id", APPLICATION_ID)
            connection.pragma("user_version", number)
    return len(scripts)


def _scripts() -> list[str]:
    folder = resources.files("paceline.adapters.sqlite") / "migrations"
    files = sorted((file for file in folder.iterdir() if file.name.endswith(".sql")), key=lambda file: file.name)
    for number, file in enumerate(files, start=1):
        assert file.name.startswith(f"{number:04d}_"), f"{file.name} breaks the numbering"
    return [file.read_text(encoding="utf-8") for file in files]
