-- Who is counted. A key is forgotten together with its state.
CREATE TABLE key (
	id     INTEGER PRIMARY KEY,
	tenant TEXT NOT NULL,
	policy TEXT NOT NULL,
	name   TEXT NOT NULL,
	UNIQUE (tenant, policy, name)
);

-- What is used, per key, in the binary form of internal/record, without entries and reservations.
CREATE TABLE state (
	key    INTEGER PRIMARY KEY,
	rev    INTEGER NOT NULL, -- a number that no other writing of any state has: who has this one has the record
	until  INTEGER NOT NULL, -- µs: nothing is used from then on; the largest integer while a reservation is open
	record BLOB NOT NULL
);

-- What rolling limits count, one row per instant: n units that count until last + window.
CREATE TABLE entry (
	key   INTEGER NOT NULL,
	lim   INTEGER NOT NULL, -- the limit's identity
	first INTEGER NOT NULL, -- µs
	last  INTEGER NOT NULL, -- µs
	n     INTEGER NOT NULL,
	PRIMARY KEY (key, lim, first)
) WITHOUT ROWID;

-- Reservations that are neither settled nor over.
CREATE TABLE open (
	key         INTEGER NOT NULL,
	id          TEXT NOT NULL,
	reservation BLOB NOT NULL,
	units       TEXT NOT NULL, -- as in history
	labels      BLOB,
	PRIMARY KEY (key, id)
) WITHOUT ROWID;

-- Everything that was admitted, in the order in which it was. It has no index: seq grows with time. What counts does not depend on it.
CREATE TABLE history (
	seq    INTEGER PRIMARY KEY,
	at     INTEGER NOT NULL, -- µs
	op     INTEGER NOT NULL, -- 0 take, 1 settle, 2 cancel, 3 charge, 4 expire, 5 refund
	tenant TEXT NOT NULL,
	policy TEXT NOT NULL,
	name   TEXT NOT NULL,
	units  TEXT NOT NULL,    -- "requests=1 tokens=250"
	id     TEXT,             -- of the reservation
	labels BLOB              -- of the take: name, value, name, value, each with its length in front
);

-- When the store was cleaned last, in µs.
CREATE TABLE meta (
	name  TEXT PRIMARY KEY,
	value INTEGER NOT NULL
) WITHOUT ROWID;

PRAGMA application_id = 1146242903; -- "DRGW"
