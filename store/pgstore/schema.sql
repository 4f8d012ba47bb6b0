CREATE TABLE IF NOT EXISTS {setting} (
	name  text COLLATE "C" PRIMARY KEY,
	value text NOT NULL
);
INSERT INTO {setting} (name, value) VALUES ('schema', '1') ON CONFLICT DO NOTHING;

-- One row per bucket. No index has a column that changes, so that an update leaves nothing in one.
CREATE TABLE IF NOT EXISTS {bucket} (
	key    text COLLATE "C" PRIMARY KEY,
	parts  bytea,                             -- of the key, if they do not fit into it
	until  bigint  NOT NULL DEFAULT 0,        -- unused from then on, in µs; while reservations are open, when the last one ends
	held   boolean NOT NULL DEFAULT false,    -- reservations are open
	record bytea   NOT NULL DEFAULT '',       -- what is used and held
	line   bytea,                             -- who waits
	notes  bytea,                             -- what the history will say of open reservations
	marks  bytea   NOT NULL DEFAULT ''        -- the last transactions, by which a lost answer is looked up
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 1000,
	toast.autovacuum_vacuum_scale_factor = 0.05, toast.autovacuum_vacuum_threshold = 1000);
ALTER TABLE {bucket} ALTER record SET STORAGE EXTERNAL, ALTER line SET STORAGE EXTERNAL, ALTER marks SET STORAGE EXTERNAL;

-- What was admitted and given back. Plain takes of one transaction that are alike are one row.
CREATE TABLE IF NOT EXISTS {history} (
	seq    bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	at     bigint   NOT NULL, -- µs since 1970, UTC
	op     smallint NOT NULL, -- 0 take, 1 settle, 2 cancel, 3 charge, 4 expire, 5 refund, 6 pause, 7 unpause
	takes  integer  NOT NULL, -- how many there were
	tenant text     NOT NULL,
	policy text     NOT NULL,
	name   text     NOT NULL,
	units  text     NOT NULL, -- of each: requests=1 tokens=250
	id     text,              -- of the reservation
	labels text[],            -- name=value; of long ones how they begin, because an index takes no more
	whole  text[]             -- all labels, if one is long
);
CREATE INDEX IF NOT EXISTS {history_at} ON {history} (at);
CREATE INDEX IF NOT EXISTS {history_key} ON {history} (left(policy, 100), left(name, 100), at); -- a name may be too long for an index
CREATE INDEX IF NOT EXISTS {history_labels} ON {history} USING gin (labels) WHERE labels IS NOT NULL;

CREATE TABLE IF NOT EXISTS {document} (
	collection bytea NOT NULL,
	name       bytea NOT NULL,
	value      bytea NOT NULL,
	PRIMARY KEY (collection, name)
);
