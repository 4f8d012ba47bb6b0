package sqlitestore

import (
	"errors"
	"fmt"

	"modernc.org/sqlite"

	"github.com/drawgate/drawgate/internal/record"
	"github.com/drawgate/drawgate/store"
)

var (
	// ErrDamaged means that the database is corrupt, truncated, not a database, or was deleted or
	// replaced while it was open. The store stays unavailable until somebody repairs the file and
	// opens it again: continuing with an empty file would grant every quota again.
	ErrDamaged = errors.New("the database is damaged, and stays unavailable until it is repaired")
	// ErrForeign means that the file is a database of another program, or of a newer version of
	// this one.
	ErrForeign = errors.New("the database is not one that this program can use")
)

// Primary result codes of SQLite that need different handling (https://sqlite.org/rescode.html).
// The driver reports extended codes; the primary code is their low byte.
const (
	codePerm     = 3
	codeBusy     = 5
	codeLocked   = 6
	codeReadOnly = 8
	codeIOErr    = 10
	codeCorrupt  = 11
	codeFull     = 13
	codeCantOpen = 14
	codeProtocol = 15
	codeAuth     = 23
	codeNotADB   = 26
)

// advice says what to do about a result code.
var advice = map[int]string{
	codePerm:     "this process is not allowed to use the file: check its permissions; the store recovers by itself",
	codeBusy:     "another process holds a lock on the database: the store recovers by itself when the lock is released",
	codeLocked:   "another connection holds a lock on the database: the store recovers by itself when the lock is released",
	codeReadOnly: "the database cannot be written: check the permissions of the file and its directory, and that the disk is not mounted read-only; the store recovers by itself",
	codeIOErr:    "the disk failed or is full, or a size limit was reached (a quota, ulimit -f): check the disk; the store recovers by itself when writing works again",
	codeFull:     "the disk is full: free some space; the store recovers by itself",
	codeCantOpen: "the database cannot be opened: check that its directory exists and can be written, that this user may write the file, and that the disk is not mounted read-only; the store recovers by itself",
	codeProtocol: "the database cannot be locked: check that it is on a local disk",
	codeCorrupt:  "restore the file, its -wal and its -shm from a backup, or repair it (drawgate repair), and restart the programs that use it",
	codeNotADB:   "restore the file, its -wal and its -shm from a backup, or repair it (drawgate repair), and restart the programs that use it",
}

// code returns the primary result code of an error of SQLite, or 0 for other errors.
func code(err error) int {
	if e, ok := errors.AsType[*sqlite.Error](err); ok {
		return e.Code() & 0xff
	}
	return 0
}

func busy(err error) bool {
	c := code(err)
	return c == codeBusy || c == codeLocked
}

// explained is an error that says what it means and what to do about it.
type explained struct{ error }

func (e explained) Unwrap() error { return e.error }

// explain adds what an error means and what to do about it, once.
func explain(err error) error {
	if _, ok := errors.AsType[explained](err); ok || err == nil {
		return err
	}
	if more := meaning(err); more != nil {
		return explained{more}
	}
	return err
}

// meaning returns err with what it means and what to do about it, or nil.
func meaning(err error) error {
	c := code(err)
	switch {
	case c == codeCorrupt || c == codeNotADB:
		return fmt.Errorf("%w: %s: %w", ErrDamaged, advice[c], err)
	case errors.Is(err, record.ErrVersion):
		return fmt.Errorf("%w: the bucket was written by a newer version: use that version: %w", ErrForeign, err)
	case errors.Is(err, record.ErrDamaged):
		return fmt.Errorf("%w: the stored bucket is damaged: restore the database from a backup, or reset the bucket: %w", ErrDamaged, err)
	case advice[c] != "":
		return fmt.Errorf("%s: %w", advice[c], err)
	}
	return nil
}

// explainOpen is explain for a file that is being opened: SQLite's errors do not name it.
func explainOpen(path string, err error) error {
	if code(err) == 0 {
		return explain(err)
	}
	return fmt.Errorf("%s: %w", path, explain(err))
}

func storeError(op string, err error) error {
	return &store.Error{Store: "sqlite", Op: op, Err: err, Fault: faultOf(err)}
}

// passes reports whether a file that could not be opened may be usable later, without anybody
// having repaired it.
func passes(err error) bool {
	f := faultOf(err)
	return code(err) != 0 && (f == store.FaultTransient || f == store.FaultConfiguration)
}

// faultOf returns what kind of failure an error is.
func faultOf(err error) store.Fault {
	switch c := code(err); {
	case isBucket(err):
		return store.FaultBucket
	case errors.Is(err, ErrDamaged), errors.Is(err, ErrForeign):
		return store.FaultPermanent
	case c == codeBusy || c == codeLocked || advice[c] == "":
		return store.FaultTransient
	}
	return store.FaultConfiguration
}
