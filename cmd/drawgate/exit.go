package main

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/config"
	"github.com/drawgate/drawgate/engine"
	"github.com/drawgate/drawgate/internal/failure"
	"github.com/drawgate/drawgate/store"
)

// The exit codes. Those from 64 on are from sysexits.h. `run` has additional ones, like shells and
// other programs that run commands, and `audit` two, like grep.
const (
	exitOK    = 0
	exitUsage = 64 // the command line is wrong, or what it asks can never be granted
	// the store or the server cannot be reached, or did not answer; or the port of serve is in
	// use.
	exitUnavailable = 69
	exitInternal    = 70
	exitRefused     = 75 // try again later
	exitConfig      = 78 // the configuration is wrong

	exitOver    = 1 // audit: a limit was exceeded
	exitUnclear = 2 // audit: a limit may have been exceeded

	exitLost       = 124 // run: the command was ended because its hold was lost
	exitRunFailed  = 125 // run: drawgate itself failed
	exitCannotExec = 126 // run: the command was found and could not be started
	exitNotFound   = 127 // run: the command was not found
	exitSignal     = 128 // run: plus the signal that ended the command
)

const exitHelp = `Exit codes:
  0   allowed, or done
  64  the command line is wrong, or asks for more than a limit can ever grant
  69  the store or the server cannot be reached, or did not answer; serve: its port is in use
  70  an error inside drawgate
  75  refused: try again later
  78  the configuration is wrong
  "run" and "audit" have codes of their own: see drawgate run --help, drawgate audit --help`

// exitError ends the program with a code. If err is nil there is no message to print.
type exitError struct {
	code int
	err  error
}

func (e *exitError) Error() string {
	if e.err == nil {
		return fmt.Sprintf("exit code %d", e.code)
	}
	return e.err.Error()
}

func (e *exitError) Unwrap() error { return e.err }

// usage is a mistake in the command line.
func usage(format string, args ...any) error {
	return &exitError{exitUsage, fmt.Errorf(format, args...)}
}

// done returns an error that ends the program with a code, without a message.
func done(code int) error {
	if code == exitOK {
		return nil
	}
	return &exitError{code: code}
}

// exitCode returns the exit code of an error.
func exitCode(err error) int {
	if err == nil {
		return exitOK
	}
	if e, ok := errors.AsType[*exitError](err); ok {
		return e.code
	}
	if _, ok := errors.AsType[config.Problems](err); ok {
		return exitConfig
	}
	_, isFile := errors.AsType[*fs.PathError](err)
	switch kind := failure.Of(err); {
	case kind.Undecided():
		return exitUnavailable
	case kind == failure.IDReused, kind == failure.IDOpen, kind == failure.TooManyOpen:
		return exitInternal // the command line is right
	case kind.Mistake(), errors.Is(err, engine.ErrTooMany):
		return exitUsage
	case isFile: // a file that the configuration names
		return exitConfig
	}
	return exitInternal
}

// advice returns what to do about an error, or "" if that is obvious.
func advice(err error) string {
	_, gaveUp := errors.AsType[*drawgate.GaveUpError](err)
	unknown := failure.MaySpend(err) || errors.Is(err, store.ErrUnknownOutcome) && !onlyReads(err)
	switch kind := failure.Of(err); {
	case kind == failure.NeverFits:
		return "Waiting does not help: ask for less, or raise the limit."
	case unknown && (gaveUp || kind == failure.Unavailable):
		return "It may have been carried out: drawgate status tells. Check the store, or name another with --store."
	case gaveUp:
		return "The store did not answer in time. Check it, or name another with --store."
	case kind == failure.Unavailable && errors.Is(err, fs.ErrPermission):
		return notAllowed(err)
	case kind == failure.Unavailable:
		return "Nothing was decided. Check the store, or name another with --store."
	}
	return ""
}

// onlyReads reports whether a call of the store that failed changes no count.
func onlyReads(err error) bool {
	e, ok := errors.AsType[*drawgate.StoreError](err)
	return ok && slices.Contains([]string{"open", "init", "ping", "peek", "list", "read", "index"}, e.Op)
}

// notAllowed says what to do if a store's file may not be opened. Usually it is that of a service.
func notAllowed(err error) string {
	as := "as the user who owns the file"
	if e, ok := errors.AsType[*fs.PathError](err); ok {
		if owner := ownerOf(e.Path); owner != "" {
			as = fmt.Sprintf("as the user %s (sudo -u %[1]s drawgate …)", owner)
		}
	}
	return "Nothing was decided. Run the command " + as + ", or ask the server with --server."
}
