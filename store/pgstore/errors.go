package pgstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/drawgate/drawgate/internal/record"
	"github.com/drawgate/drawgate/store"
)

// Errors that a [store.Error] of this store may wrap.
var (
	// ErrTables means that the tables are missing, of a newer version, or not those of this store.
	ErrTables = errors.New("the tables cannot be used")
)

// SQLSTATE codes: https://www.postgresql.org/docs/15/errcodes-appendix.html.
const (
	codeUndefinedTable  = "42P01"
	codeUndefinedColumn = "42703"
	codeTableTwice      = "42P07"
	codeUndefinedSchema = "3F000"
	codeNoDatabase      = "3D000"
	codePrivilege       = "42501"
	codeReadOnly        = "25006"
	codePlanChanged     = "0A000"
	codeNoStatement     = "26000"
	codeStatementTwice  = "42P05"
	codeDiskFull        = "53100"
	codeOutOfMemory     = "53200"
	codeTooManyConns    = "53300"
	codeLockTimeout     = "55P03"
	codeCanceled        = "57014"
	codeStarting        = "57P03"
	codeSerialization   = "40001"
	codeDeadlock        = "40P01"
	codeDivision        = "22012" // see statements.update
	codeDamaged         = "XX001"
	codeIndexDamaged    = "XX002"
	codeCharacter       = "22021"
	codeUntranslatable  = "22P05"
	classConnection     = "08"
	classData           = "22"
	classLimit          = "54"
	classAuthorization  = "28"
)

// advice says what a code means and what to do about it.
var advice = map[string]string{
	codeUndefinedTable:  "the store's tables are missing: run drawgate table create, or let the role make them",
	codeUndefinedColumn: "a table is not the one that this store made: choose another prefix or schema",
	codeTableTwice:      "some of the store's tables are there, but not that of its settings: choose another prefix or schema, or drop them",
	codeDivision:        "the row cannot be written where it was read: a trigger or row level security of the table keeps this role from that",
	codeUndefinedSchema: "the schema is missing: CREATE SCHEMA it, and GRANT USAGE, CREATE ON it to the role",
	codeNoDatabase:      "the database is missing: create it (createdb), or correct the URL",
	codePrivilege:       "the role lacks a permission: drawgate table create --print lists what it needs",
	codeReadOnly:        "the server takes no writes, as a standby does: name the primary, or all servers with target_session_attrs=read-write",
	codeDiskFull:        "the server's disk is full",
	codeOutOfMemory:     "the server has no memory left",
	codeTooManyConns:    "the server has no connection left: lower pool_max_conns, or raise max_connections",
	codeLockTimeout:     "a row stayed locked by somebody else for longer than lock_timeout",
	codeCanceled:        "the server canceled the statement, as statement_timeout or an administrator asks",
	codeStarting:        "the server is starting, recovering or shutting down",
	"28P01":             "the server refuses the password, or none is given: correct the URL, password_file, PGPASSWORD or ~/.pgpass",
	"28000":             "the server refuses this role: create it (CREATE ROLE ... LOGIN), or let pg_hba.conf admit it",
	codeCharacter:       "the database's encoding does not have every character: use one that was created with ENCODING 'UTF8'",
	codeUntranslatable:  "the database's encoding does not have every character: use one that was created with ENCODING 'UTF8'",
	codeDamaged:         "the server found a damaged page: restore it from a backup",
	codeIndexDamaged:    "the server found a damaged index: REINDEX it",
}

// configuration are the codes of failures that somebody must mend.
var configuration = map[string]bool{
	codeUndefinedTable: true, codeUndefinedColumn: true, codeTableTwice: true, codeUndefinedSchema: true,
	codeNoDatabase: true,
	codePrivilege:  true, codeReadOnly: true, codeDiskFull: true, codeDamaged: true, codeIndexDamaged: true,
}

// code returns the SQLSTATE of an error, or "".
func code(err error) string {
	if e, ok := errors.AsType[*pgconn.PgError](err); ok {
		return e.Code
	}
	return ""
}

// ofData reports whether a server refused something that one call wrote.
func ofData(err error) bool {
	c := code(err)
	return (strings.HasPrefix(c, classData) || strings.HasPrefix(c, classLimit)) && c != codeDivision
}

// faultOf returns what kind of failure an error is.
func faultOf(err error) store.Fault {
	c := code(err)
	switch {
	case errors.Is(err, record.ErrDamaged), errors.Is(err, record.ErrVersion), errors.Is(err, errTooLarge),
		ofData(err):
		return store.FaultBucket
	case errors.Is(err, ErrTables), errors.Is(err, errPassword), errors.Is(err, store.ErrInvalid), configuration[c],
		strings.HasPrefix(c, classAuthorization):
		return store.FaultConfiguration
	}
	return store.FaultTransient
}

// storeError returns the error of a call. It shows no row: details may have keys.
func storeError(op string, err error) error {
	if err == nil {
		return nil
	}
	if _, ok := errors.AsType[*store.Error](err); ok || errors.Is(err, store.ErrClosed) {
		return err
	}
	return &store.Error{Store: "postgres", Op: op, Err: explain(err), Fault: faultOf(err)}
}

// nothingDone is the error of a call that was certainly not carried out.
func nothingDone(op string, err error) error {
	return storeError(op, fmt.Errorf("%w: %w", store.ErrNothingDone, err))
}

// explain adds what an error means and what to do about it.
func explain(err error) error {
	switch {
	case errors.Is(err, record.ErrVersion):
		return fmt.Errorf("the bucket was written by a newer version: use that version: %w", err)
	case errors.Is(err, record.ErrDamaged):
		return fmt.Errorf("the stored bucket is damaged: reset it, or restore the row from a backup: %w", err)
	}
	if more := advice[code(err)]; more != "" {
		return fmt.Errorf("%s: %w", more, err)
	}
	if unreachable(err) {
		return fmt.Errorf("no connection: look whether the server runs, whether its address is right, and which sslmode it accepts: %w", err)
	}
	return err
}

// unreachable reports whether no connection could be made.
func unreachable(err error) bool {
	_, ok := errors.AsType[*pgconn.ConnectError](err)
	return ok && code(err) == ""
}

// lost reports whether a connection cannot be used any more, for a reason that a new one may not
// share.
func lost(err error) bool {
	if _, ok := errors.AsType[*pgconn.ConnectError](err); ok {
		return false
	}
	e, ok := errors.AsType[*pgconn.PgError](err)
	if !ok {
		return !errors.Is(err, context.Canceled) && !errors.Is(err, context.DeadlineExceeded) && !ours(err)
	}
	switch e.Code {
	case codeReadOnly, codePlanChanged, codeNoStatement, codeStatementTwice:
		return true
	}
	return ended(e)
}

// ended reports whether an error is the last that a connection receives: a pooler says so, too,
// when it has lost the server.
func ended(e *pgconn.PgError) bool {
	severity := cmp.Or(e.SeverityUnlocalized, e.Severity)
	return severity == "FATAL" || severity == "PANIC" || strings.HasPrefix(e.Code, classConnection)
}

// ours reports whether an error arose in this process, by what a server answered.
func ours(err error) bool {
	return errors.Is(err, ErrTables) || errors.Is(err, record.ErrDamaged) || errors.Is(err, record.ErrVersion) ||
		errors.Is(err, errTooLarge) || errors.Is(err, errPassword) || errors.Is(err, store.ErrInvalid)
}

// refused reports whether a server answered a transaction with an error, and goes on: then nothing
// of it was done.
func refused(err error) bool {
	e, ok := errors.AsType[*pgconn.PgError](err)
	return ok && !ended(e)
}
