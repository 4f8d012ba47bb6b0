package pgstore

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/drawgate/drawgate/store/pgstore/internal/pg"
)

// GrantOptions says what a role may do. The zero value is what a [Store] needs.
type GrantOptions struct {
	Role     string // "" means the user of the URL
	ReadOnly bool   // only look at buckets and the history
	Create   bool   // make the tables, in a schema that is there
}

// usual is the schema of a search path that nobody has changed.
const usual = "public"

// TablesSQL returns the statements with which somebody else makes the tables. prefix may be "".
func TablesSQL(url, prefix string) (string, error) {
	a, sql, err := prepare(url, prefix)
	if err != nil {
		return "", err
	}
	var b strings.Builder
	b.WriteString("BEGIN;\n")
	if a.schema != "" {
		fmt.Fprintf(&b, "CREATE SCHEMA IF NOT EXISTS %s;\n", pg.Name(a.schema))
	}
	b.WriteString(strings.TrimSpace(sql.create) + "\nCOMMIT;\n")
	return b.String(), nil
}

// GrantsSQL returns the statements that let a role use the tables, and nothing else. Whoever owns
// them applies these.
func GrantsSQL(url, prefix string, o GrantOptions) (string, error) {
	a, sql, err := prepare(url, prefix)
	if err != nil {
		return "", err
	}
	c := a.config
	to := pg.Name(cmp.Or(o.Role, c.User))
	var b strings.Builder
	if c.Database != "" {
		fmt.Fprintf(&b, "GRANT CONNECT ON DATABASE %s TO %s;\n", pg.Name(c.Database), to)
	}
	on := pg.Name(cmp.Or(a.schema, usual))
	if o.Create {
		fmt.Fprintf(&b, "GRANT USAGE, CREATE ON SCHEMA %s TO %s;\n", on, to)
		return b.String(), nil
	}
	fmt.Fprintf(&b, "GRANT USAGE ON SCHEMA %s TO %s;\n", on, to)
	fmt.Fprintf(&b, "GRANT %s ON %s TO %s;\n", strings.Join(needed(o.ReadOnly), ", "),
		strings.Join(sql.tables(), ", "), to)
	return b.String(), nil
}

// needed are the permissions for each table. Numbers of rows need none for their sequence.
func needed(readOnly bool) []string {
	if readOnly {
		return []string{"SELECT"}
	}
	return []string{"SELECT", "INSERT", "UPDATE", "DELETE"}
}

// columns are the tables, with those of their columns that statements name.
var columns = []struct{ table, names string }{
	{"setting", "name, value"},
	{"bucket", "key, parts, until, held, record, line, notes, marks"},
	{"history", "seq, at, op, tenant, policy, name, takes, units, id, labels, whole"},
	{"document", "collection, name, value"},
}

func (q *statements) tables() (list []string) {
	for _, c := range columns {
		list = append(list, q.table(c.table))
	}
	return list
}

func prepare(url, prefix string) (*address, *statements, error) {
	a, err := parse(url)
	if err != nil {
		return nil, nil, err
	}
	sql, err := newStatements(a.schema, cmp.Or(prefix, "drawgate"))
	return a, sql, err
}

// Place names the server, the database and the tables of a URL, for people.
func Place(url, prefix string) (server, tables string, err error) {
	a, sql, err := prepare(url, prefix)
	if err != nil {
		return "", "", err
	}
	c := a.config
	server = fmt.Sprintf("%s:%d/%s", c.Host, c.Port, cmp.Or(c.Database, c.User))
	if tables = sql.prefix + "_*"; sql.schema != "" {
		tables = sql.schema + "." + tables
	}
	return server, tables, nil
}

// CheckPrefix reports whether tables can have a prefix.
func CheckPrefix(prefix string) error {
	_, err := newStatements("", cmp.Or(prefix, "drawgate"))
	return err
}

// Finding is something that keeps a store from working, or from working well.
type Finding struct {
	Warning bool   // the store works nevertheless
	Code    string // one of the codes below, for programs
	Message string // what is wrong
	Advice  string // what to do
}

// The codes of findings.
const (
	CodeUnreachable = "unreachable"
	CodeLogin       = "login" // the password, or the role
	CodeNoDatabase  = "no-database"
	CodeReadOnly    = "read-only" // a standby
	CodeNoTables    = "no-tables"
	CodeTables      = "tables" // of another program, or of a newer version
	CodePermission  = "permission"
	CodeServer      = "server"        // an old version
	CodeLoss        = "loss"          // what the server may forget
	CodeEncoding    = "encoding"      // the database lacks characters
	CodeListen      = "notifications" // they do not arrive
	CodeFailed      = "failed"        // something else
)

// oldest is the oldest version of PostgreSQL that still gets corrections.
const oldest = 14

// finding says what an error means.
func finding(err error) Finding {
	f := Finding{Code: CodeFailed, Message: err.Error(), Advice: advice[code(err)]}
	if e, ok := errors.AsType[*pgconn.PgError](err); ok {
		f.Message = e.Message
	}
	switch c := code(err); c {
	case "":
		if unreachable(err) {
			f.Code, f.Message = CodeUnreachable, strings.Join(strings.Fields(err.Error()), " ")
			f.Advice = "look whether the server runs, whether its address is right, and which sslmode it accepts"
		}
	case codeNoDatabase:
		f.Code = CodeNoDatabase
	case codeUndefinedTable, codeUndefinedSchema:
		f.Code = CodeNoTables
	case codeUndefinedColumn:
		f.Code = CodeTables
	case codePrivilege:
		f.Code = CodePermission
	case codeReadOnly:
		f.Code = CodeReadOnly
	default:
		if strings.HasPrefix(c, classAuthorization) {
			f.Code = CodeLogin
		}
	}
	if f.Advice == "" {
		f.Advice = "the server's log may say more"
	}
	return f
}

// CheckTables reports what is wrong with a server and the tables there, as this role sees them. It
// changes nothing. The error is [store.ErrInvalid]: the URL or the prefix cannot be used.
func CheckTables(ctx context.Context, url, prefix string) (list []Finding, err error) {
	a, sql, err := prepare(url, prefix)
	if err != nil {
		return nil, err
	}
	c, err := a.connectOnce(ctx)
	if err != nil {
		return []Finding{finding(err)}, nil
	}
	defer c.Close(context.WithoutCancel(ctx)) //nolint:errcheck // it is not used any more
	k := checker{a: a, sql: sql, c: c, l: &link{a: a, sql: sql, log: slog.New(slog.DiscardHandler), existing: true}}
	k.server(ctx)
	if k.tables(ctx) {
		k.permissions(ctx)
	}
	k.notifications(ctx)
	return k.list, nil
}

// checker collects findings.
type checker struct {
	a    *address
	sql  *statements
	c    *pg.Conn
	l    *link
	list []Finding
}

func (k *checker) add(f Finding) { k.list = append(k.list, f) }

// server looks at the server's version and settings.
func (k *checker) server(ctx context.Context) {
	f, err := readFacts(ctx, k.c, k.sql)
	if err != nil {
		k.add(finding(err))
		return
	}
	if f.Version < oldest*10_000 {
		k.add(Finding{
			true, CodeServer, fmt.Sprintf("the server is PostgreSQL %d, which is older than %d", f.Version/10_000, oldest),
			"use a newer one: the store is not tested on it",
		})
	}
	if f.Standby || f.ReadOnly {
		k.add(Finding{Code: CodeReadOnly, Message: "the server takes no writes", Advice: advice[codeReadOnly]})
	}
	k.list = append(k.list, f.findings()...)
}

// otherTables is what to do about tables that cannot be used.
const otherTables = "choose another prefix or schema, or drop the tables and create them again: nothing counts as used then"

// tables looks for the tables, and reports whether they are there.
func (k *checker) tables(ctx context.Context) bool {
	version, err := k.l.version(ctx, k.c)
	switch {
	case code(err) == codePrivilege:
		return true // which ones are missing is said later
	case code(err) == codeUndefinedTable:
		k.add(Finding{
			Code: CodeNoTables, Message: "there are no tables " + k.sql.prefix + "_*", Advice: `create them with "drawgate table create"`,
		})
		return false
	case errors.Is(err, ErrTables):
		f := finding(err)
		f.Code = CodeTables
		f.Message, _, _ = strings.Cut(strings.TrimPrefix(err.Error(), ErrTables.Error()+": "), ": ")
		f.Advice = otherTables
		k.add(f)
		return false
	case err != nil:
		k.add(finding(err))
		return false
	case version > schemaVersion:
		k.add(Finding{
			Code: CodeTables, Message: fmt.Sprintf("the tables are of version %d, and this program knows %d", version, schemaVersion),
			Advice: "use the newer version of this program that has made them",
		})
		return false
	}
	for _, is := range columns {
		_, err := k.c.Exec(ctx, "SELECT "+is.names+" FROM "+k.sql.table(is.table)+" LIMIT 0")
		if c := code(err); c == codeUndefinedTable || c == codeUndefinedColumn {
			k.add(Finding{
				Code: CodeTables, Message: fmt.Sprintf("the table %s_%s is missing, or another program has made it", k.sql.prefix, is.table),
				Advice: map[string]string{codeUndefinedTable: `make what is missing with "drawgate table create"`, codeUndefinedColumn: otherTables}[c],
			})
			return false
		}
	}
	return true
}

// permissions looks for what the role may not do.
func (k *checker) permissions(ctx context.Context) {
	var missing []string
	for _, name := range k.sql.tables() {
		for _, p := range needed(false) {
			var has *bool
			err := k.c.QueryRow(ctx, []any{&has}, "SELECT has_table_privilege(to_regclass($1), $2)", name, p)
			if err != nil {
				k.add(finding(err))
				return
			}
			if has == nil || !*has {
				missing = append(missing, p+" on "+name)
			}
		}
	}
	if len(missing) > 0 {
		k.add(Finding{
			Code: CodePermission, Message: "the role lacks " + strings.Join(missing, ", "),
			Advice: `"drawgate table policy" prints the GRANTs`,
		})
	}
}

// patience is how long a notification may take.
const patience = 2 * time.Second

// notifications looks whether they arrive.
func (k *checker) notifications(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, 2*patience)
	defer cancel()
	advice := "callers who wait are woken late; behind a pooler that lends connections for one transaction, add listen=HOST:PORT of the server to the URL"
	in, err := k.a.listener(ctx)
	if err != nil {
		f := finding(err)
		k.add(Finding{true, CodeListen, "nothing can listen for notifications: " + f.Message, advice})
		return
	}
	defer in.Close(context.WithoutCancel(ctx)) //nolint:errcheck // it is not used any more
	if err := k.hearOneself(ctx, in); err != nil {
		k.add(Finding{true, CodeListen, "notifications do not arrive", advice})
	}
}

// hearOneself sends a notification that nobody else sends, and waits for it.
func (k *checker) hearOneself(ctx context.Context, in *pg.Conn) error {
	const channel = "drawgate_check"
	own := rand.Text()
	if err := in.Listen(ctx, channel); err != nil {
		return err
	}
	if _, err := k.c.Exec(ctx, "SELECT pg_notify($1, $2)", channel, own); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		if text, err := in.Hear(ctx); err != nil || text == own {
			return err
		}
	}
}

// CreateTables makes the tables, and the schema that the URL names, unless they are there.
func CreateTables(ctx context.Context, url, prefix string) (created bool, err error) {
	a, sql, err := prepare(url, prefix)
	if err != nil {
		return false, err
	}
	c, err := a.connectOnce(ctx)
	if err != nil {
		return false, storeError("create", err)
	}
	defer c.Close(context.WithoutCancel(ctx)) //nolint:errcheck // it is not used any more
	l := &link{a: a, sql: sql, log: slog.New(slog.DiscardHandler), existing: true}
	_, err = l.version(ctx, c)
	created = code(err) == codeUndefinedTable
	if created {
		err = makeSchema(ctx, c, a.schema)
	}
	if err == nil {
		err = l.makeTables(ctx, c, true)
	}
	return created && err == nil, storeError("create", err)
}

// makeSchema makes a schema, unless it is there.
func makeSchema(ctx context.Context, c *pg.Conn, schema string) error {
	if schema == "" {
		return nil
	}
	var there bool
	name := pg.Name(schema)
	err := c.QueryRow(ctx, []any{&there}, "SELECT to_regnamespace($1) IS NOT NULL", name)
	if err == nil && !there {
		_, err = c.Exec(ctx, "CREATE SCHEMA IF NOT EXISTS "+name)
	}
	return err
}
