-- What else keeps an account from sending: its balance at RIPE, and types of measurements that RIPE does not let it make.

-- `balance_told`: RIPE's newest figure. `balance_free`: less what of ours RIPE has not booked; NULL: not known yet.
ALTER TABLE account ADD COLUMN balance_told INTEGER;
ALTER TABLE account ADD COLUMN balance_free INTEGER;
ALTER TABLE account ADD COLUMN balance_ms INTEGER NOT NULL DEFAULT 0;

CREATE TABLE account_type (
    account  INTEGER NOT NULL REFERENCES account (id),
    type     TEXT NOT NULL,
    until_ms INTEGER NOT NULL,
    reason   TEXT NOT NULL,
    PRIMARY KEY (account, type)
) STRICT, WITHOUT ROWID;

-- Sealing the same secret gives the same text, so an account is found by a key that it has already.
CREATE INDEX key_sealed ON "key" (sealed);
