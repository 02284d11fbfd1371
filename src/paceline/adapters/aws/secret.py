"""The check value of the secret key: one item of ``ledger``."""

from __future__ import annotations

from paceline.adapters.aws.database import Database
from paceline.adapters.aws.items import ABSENT, Key, update
from paceline.adapters.aws.tables import LEDGER

SECRET = Key("secret", "-")


def proof(database: Database) -> str | None:
    item = database.get(LEDGER, SECRET)
    return str(item["proof"]) if item else None


def keep_proof(database: Database, text: str, *, was: str | None) -> bool:
    change = "SET #proof = :proof"
    if was is None:
        return database.write(update(LEDGER, SECRET, change, when=ABSENT, proof=text)).won
    return database.write(update(LEDGER, SECRET, change, when="#proof = :was", proof=text, was=was)).won
