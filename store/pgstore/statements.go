package pgstore

import (
	_ "embed"
	"strings"
	"unicode/utf8"

	"github.com/drawgate/drawgate/store/pgstore/internal/pg"
)

// schemaVersion is the newest form of the tables that this version knows.
const schemaVersion = 1

//go:embed schema.sql
var schemaSQL string

// longestPrefix leaves room for the rest of a name: PostgreSQL cuts names after 63 bytes.
const longestPrefix = 40

// statements are the store's SQL, with the names of its tables.
type statements struct {
	schema, prefix string
	create         string // all tables, of this version
	channel        string // of notifications

	found                                             string
	version, begin, insert, lock, look, update, marks string
	events, event, read, forget                       string
	page, candidates, drop, again, ended, turn        string
	noted, dropNoted                                  string
	documents, documentsNamed, documentLock           string
	setDocument, dropDocument, tablesLock             string
	ping, facts                                       string
}

// newStatements writes the statements for tables with a prefix, in a schema ("": the first of the
// search path).
func newStatements(schema, prefix string) (*statements, error) {
	if len(prefix) > longestPrefix || !utf8.ValidString(prefix) || strings.ContainsAny(prefix, "\x00\"'$\\") {
		return nil, invalid("the prefix %q is not 1 to %d letters and digits: tables are named by it", prefix, longestPrefix)
	}
	if len(schema) > 63 || !utf8.ValidString(schema) || strings.ContainsAny(schema, "\x00\"'$\\") {
		return nil, invalid("schema=%q is not a name of at most 63 letters and digits", schema)
	}
	table := (&statements{schema: schema, prefix: prefix}).table
	names := strings.NewReplacer(
		"{bucket}", table("bucket"), "{history}", table("history"), "{document}", table("document"),
		"{setting}", table("setting"),
		"{history_at}", pg.Name(prefix+"_history_at"),
		"{history_key}", pg.Name(prefix+"_history_key"),
		"{history_labels}", pg.Name(prefix+"_history_labels"),
	).Replace
	return &statements{
		schema: schema, prefix: prefix, channel: prefix + "_line",
		create: names(schemaSQL),

		// to_regclass would answer from what this connection knew before it waited for another one.
		found: `SELECT EXISTS (SELECT FROM pg_catalog.pg_class AS c JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
			WHERE c.relname = ` + literal(prefix+"_setting") + ` AND n.nspname = coalesce(nullif(` + literal(schema) + `, ''), current_schema()))`,
		version: names(`SELECT value FROM {setting} WHERE name = 'schema'`),
		insert: names(`INSERT INTO {bucket} (key, parts) SELECT k, p FROM unnest($1::text[], $2::bytea[]) AS n(k, p)
			ORDER BY k COLLATE "C" ON CONFLICT (key) DO NOTHING`),
		// The time-out bounds how long others wait for a process that stops before it answers. A
		// plan that was made while the table was small would read all of it, until the table is
		// analyzed.
		begin: `SELECT set_config('idle_in_transaction_session_timeout', '2s', true), set_config('enable_seqscan', 'off', true)`,
		// The clock is read after each lock: the last reading is after all of them.
		lock: names(`SELECT key, place::text, record, line, notes, marks, clock_timestamp()
			FROM (SELECT key, ctid AS place, record, line, notes, marks FROM {bucket} WHERE key = ANY($1::text[])
				ORDER BY key FOR UPDATE) AS locked`),
		look: names(`SELECT n.i, clock_timestamp(), b.record, b.line FROM generate_series(1, cardinality($1::text[])) AS n(i)
			LEFT JOIN {bucket} AS b ON b.key = ($1::text[])[n.i]`),
		// By its place a row is found at once, however many old versions of it there are. If it
		// were not there, the division would fail, and with it the transaction.
		update: names(`WITH written AS (UPDATE {bucket} SET until = $3, held = $4, record = $5, line = $6, notes = $7, marks = $8
			WHERE ctid = $2::text::tid AND key = $1 RETURNING 1) SELECT 1 / count(*) FROM written`),
		marks: names(`SELECT marks, clock_timestamp() FROM (SELECT marks FROM {bucket} WHERE key = $1 FOR UPDATE) AS locked`),

		events: names(`INSERT INTO {history} (at, op, tenant, policy, name, takes, units)
			SELECT * FROM unnest($1::bigint[], $2::smallint[], $3::text[], $4::text[], $5::text[], $6::int[], $7::text[])`),
		event: names(`INSERT INTO {history} (at, op, tenant, policy, name, takes, units, id, labels, whole)
			VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)`),
		read: names(`SELECT seq, at, op, tenant, policy, name, takes, units, id, coalesce(whole, labels) FROM {history}
			WHERE (at, seq) > ($1, $2) AND at < $3
				AND ($4::text IS NULL OR left(policy, 100) = left($4, 100) AND policy = $4) AND ($5::smallint IS NULL OR op = $5)
				AND ($6::text IS NULL OR tenant = $6) AND ($7::text IS NULL OR left(name, 100) = left($7, 100) AND name = $7)
				AND ($8::text[] IS NULL OR labels @> $8)
			ORDER BY at, seq LIMIT $9`),
		forget: names(`DELETE FROM {history} WHERE seq IN (SELECT seq FROM {history} WHERE at < $1 ORDER BY at LIMIT $2
			FOR UPDATE SKIP LOCKED)`),

		page: names(`SELECT key, parts, until, held, CASE WHEN held THEN record END, clock_timestamp() FROM {bucket}
			WHERE key >= $1 AND key < $2 ORDER BY key LIMIT $3`),
		candidates: names(`WITH page AS (SELECT key, until FROM {bucket} WHERE key > $1 ORDER BY key LIMIT $2)
			SELECT (SELECT max(key) FROM page), ARRAY(SELECT key FROM page WHERE until < $3)`),
		drop: names(`DELETE FROM {bucket} WHERE key IN (SELECT key FROM {bucket} WHERE key = ANY($1::text[]) AND until < $2
			AND NOT held AND notes IS NULL ORDER BY key FOR UPDATE SKIP LOCKED)`),
		noted: names(`SELECT key, parts, record, notes, clock_timestamp() FROM {bucket} WHERE key = ANY($1::text[]) AND until < $2
			AND NOT held AND notes IS NOT NULL ORDER BY key FOR UPDATE SKIP LOCKED`),
		dropNoted: names(`DELETE FROM {bucket} WHERE key = $1`),
		again: names(`SELECT key, record FROM {bucket} WHERE key = ANY($1::text[]) AND held AND until < $2
			ORDER BY key FOR UPDATE SKIP LOCKED`),
		ended: names(`UPDATE {bucket} SET until = $2, held = false WHERE key = $1`),
		turn: names(`INSERT INTO {setting} (name, value) VALUES ($1, $2::bigint::text) ON CONFLICT (name)
			DO UPDATE SET value = EXCLUDED.value WHERE {setting}.value::bigint < $3`),

		documents:      names(`SELECT name, value FROM {document} WHERE collection = $1`),
		documentsNamed: names(`SELECT name, value FROM {document} WHERE collection = $1 AND name = ANY($2::bytea[])`),
		// Of the table that is found, however the URL names its schema.
		documentLock: `SELECT pg_advisory_xact_lock((` + literal(table("document")) + `::regclass::oid::bigint << 32) | $1::bigint)`,
		tablesLock:   `SELECT pg_advisory_xact_lock($1)`,
		setDocument: names(`INSERT INTO {document} (collection, name, value) VALUES ($1, $2, $3)
			ON CONFLICT (collection, name) DO UPDATE SET value = EXCLUDED.value`),
		dropDocument: names(`DELETE FROM {document} WHERE collection = $1 AND name = $2`),

		ping: names(`UPDATE {setting} SET value = value WHERE name = 'schema'`),
		facts: `SELECT current_setting('server_version_num')::int, current_setting('synchronous_commit'),
			current_setting('fsync'), current_setting('full_page_writes'),
			current_setting('synchronous_standby_names'), (SELECT count(*) FROM pg_stat_replication),
			pg_is_in_recovery(), current_setting('transaction_read_only'), EXISTS (SELECT FROM pg_catalog.pg_class
				WHERE oid = to_regclass(` + literal(table("bucket")) + `) AND relpersistence = 'u'),
			current_setting('server_encoding')`,
	}, nil
}

// table returns the name of a table as it is written in a statement.
func (q *statements) table(name string) string {
	if q.schema != "" {
		return pg.Name(q.schema, q.prefix+"_"+name)
	}
	return pg.Name(q.prefix + "_" + name)
}

// literal returns a text as a constant of a statement. It has no quotes: see newStatements.
func literal(text string) string { return "'" + text + "'" }
