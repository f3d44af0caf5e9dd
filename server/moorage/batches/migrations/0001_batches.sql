-- header: JSON. state: running, done, cancelled or expired. Times are seconds since 1970.
CREATE TABLE batches (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    batch_id TEXT NOT NULL UNIQUE,
    header TEXT NOT NULL,
    state TEXT NOT NULL,
    complete INTEGER NOT NULL DEFAULT 0,
    created_at_s REAL NOT NULL,
    ended_at_s REAL,
    expires_at_s REAL,
    received INTEGER NOT NULL DEFAULT 0,
    succeeded INTEGER NOT NULL DEFAULT 0,
    failed INTEGER NOT NULL DEFAULT 0,
    cancelled INTEGER NOT NULL DEFAULT 0,
    numbered INTEGER NOT NULL DEFAULT 0,
    stored_bytes INTEGER NOT NULL DEFAULT 0
);

CREATE INDEX batches_by_age ON batches (created_at_s, batch_id);

-- payload: until there is an outcome. outcome: 0 a result, 1 an error, NULL none yet. sequence: where it is told.
CREATE TABLE items (
    batch INTEGER NOT NULL,
    position INTEGER NOT NULL,
    item_id TEXT NOT NULL,
    payload BLOB,
    outcome INTEGER,
    content BLOB,
    sequence INTEGER,
    PRIMARY KEY (batch, position)
);
CREATE UNIQUE INDEX items_by_id ON items (batch, item_id);
CREATE UNIQUE INDEX items_by_sequence ON items (batch, sequence) WHERE sequence IS NOT NULL;
