package redisstore

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"

	"github.com/redis/rueidis"

	"github.com/drawgate/drawgate/store"
)

// Errors that a [store.Error] of this store may wrap.
var (
	// ErrMisconfigured means that no retry will help: wrong credentials, missing permissions, a key
	// of another type, a record of a newer version. Nothing was carried out.
	ErrMisconfigured = errors.New("misconfigured")
)

// notExecuted are words in a server's error which say that it did not carry out the call, and may
// do so later. Servers before 7 wrap errors of a script in their own text, so these words may
// appear anywhere.
var notExecuted = [...]string{
	"NOSCRIPT", "READONLY", "LOADING", "MASTERDOWN", "BUSY", "OOM", "MISCONF", "NOREPLICAS", "TRYAGAIN", "CLUSTERDOWN",
	"MOVED", "ASK", "REDIRECT", "max number of clients",
}

// permission are words which say that the user lacks a permission. Within a script, Redis 7.0 uses
// the second and the third; later versions and Valkey use the last, at the start of a sentence or
// inside one.
var permission = [...]string{"NOPERM", "can't run this command", "can't access", "o permissions to"}

// configuration are words which say that somebody must fix the server's configuration.
var configuration = append([]string{"READONLY", "OOM", "MISCONF", "NOAUTH", "WRONGPASS"}, permission[:]...)

// ofBucket are words by which a server, or the script, says that a key does not hold a bucket that
// it understands. A runtime error of the script counts too: the script is the same for all keys, so
// the key must be the cause.
var ofBucket = [...]string{"WRONGTYPE", "DRAWGATE", "user_script", "Error running script", "Error compiling script"}

// faultOf returns what kind of failure a server reports.
func faultOf(text string) store.Fault {
	has := func(words []string) bool {
		return slices.ContainsFunc(words, func(w string) bool { return strings.Contains(text, w) })
	}
	switch {
	case has(configuration):
		return store.FaultConfiguration
	case has(notExecuted[:]):
		return store.FaultTransient
	case has(ofBucket[:]):
		return store.FaultBucket
	}
	return store.FaultConfiguration // CROSSSLOT, EXECABORT, an unknown command
}

// failure returns the error of a call that was sent. err may be nil. Keys are removed from its
// text.
func failure(op string, err error, keys []string) error {
	if err == nil {
		return nil
	}
	if re, ok := rueidis.IsRedisErr(err); ok {
		return reported(op, re.Error(), keys)
	}
	if errors.Is(err, errReplicaThen) {
		return reported(op, errReplicaThen.Error(), nil)
	}
	if ours(err) {
		return storeError(op, err)
	}
	if neverSent(err) {
		return notSent(op, err)
	}
	return storeError(op, fmt.Errorf("%w: %w", store.ErrUnknownOutcome, err))
}

// reported returns an error for what a server answered. Keys are removed from its text.
func reported(op, text string, keys []string) error {
	for _, k := range keys {
		text = strings.ReplaceAll(text, k, "<key>")
	}
	fault := faultOf(text)
	if strings.Contains(text, noFunction) {
		name, _ := library()
		text = fmt.Sprintf("the server does not have the functions of this version (%s): load them on each primary "+
			"(drawgate store functions | redis-cli -x FUNCTION LOAD REPLACE), or let programs do so with functions=load",
			name)
	}
	for _, word := range notExecuted {
		if strings.Contains(text, word) {
			return &store.Error{Store: "redis", Op: op, Err: errors.New(text), Fault: fault}
		}
	}
	return &store.Error{Store: "redis", Op: op, Err: fmt.Errorf("%w: %s", ErrMisconfigured, text), Fault: fault}
}

// ours reports whether the error arose in this process: in reading an answer, or before a call.
func ours(err error) bool {
	return errors.Is(err, errAnswer) || errors.Is(err, errDamaged) || errors.Is(err, errOld) ||
		errors.Is(err, errDisagree) || errors.Is(err, ErrMisconfigured) || errors.Is(err, ErrLost) ||
		errors.Is(err, store.ErrInvalid)
}

// neverSent reports whether the call cannot have reached the server.
func neverSent(err error) bool {
	if op := (*net.OpError)(nil); errors.As(err, &op) && op.Op == "dial" {
		return true
	}
	return errors.Is(err, rueidis.ErrClosing) || errors.Is(err, rueidis.ErrNoAddr) || errors.Is(err, rueidis.ErrNoSlot)
}

// notSent returns the error of a call that was not sent.
func notSent(op string, err error) error {
	if _, ok := rueidis.IsRedisErr(err); ok {
		return failure(op, err, nil)
	}
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) || ours(err) {
		return storeError(op, err)
	}
	return storeError(op, fmt.Errorf("no connection: %w", err))
}

func storeError(op string, err error) error {
	fault := store.FaultTransient
	switch {
	case errors.Is(err, errOld), errors.Is(err, ErrMisconfigured), errors.Is(err, ErrLost):
		fault = store.FaultConfiguration
	case errors.Is(err, errAnswer), errors.Is(err, errDamaged), errors.Is(err, errDisagree):
		fault = store.FaultBucket
	}
	return &store.Error{Store: "redis", Op: op, Err: err, Fault: fault}
}
