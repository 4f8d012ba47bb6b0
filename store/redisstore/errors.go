package redisstore

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"

	"github.com/redis/rueidis"

	"github.com/drawgate/drawgate"
)

// What the Err of a [drawgate.StoreError] of this store may match.
var (
	// ErrUnknownOutcome means that a call was sent and its answer was lost: it may have been
	// carried out.
	ErrUnknownOutcome = errors.New("the outcome is unknown")
	// ErrMisconfigured means that no retry will help: credentials, permissions, a key that holds
	// something else, a record of a newer version. Nothing was carried out.
	ErrMisconfigured = errors.New("misconfigured")
)

// notExecuted are the words in a server's error by which it says that it did not carry out the
// call, and may do so later. Servers before 7 wrap an error in a script in a text of their own, so
// they are looked for anywhere.
var notExecuted = [...]string{
	"NOSCRIPT", "READONLY", "LOADING", "MASTERDOWN", "BUSY", "OOM", "MISCONF", "NOREPLICAS", "TRYAGAIN", "CLUSTERDOWN",
	"MOVED", "ASK", "REDIRECT", "max number of clients",
}

// permission are the words by which a server says that the user may not: within a script the second
// and the third of Redis 7.0, the last of later ones and of Valkey, which begins a sentence with it
// or does not.
var permission = [...]string{"NOPERM", "can't run this command", "can't access", "o permissions to"}

// configuration are the words after which somebody must put the server right.
var configuration = append([]string{"READONLY", "OOM", "MISCONF", "NOAUTH", "WRONGPASS"}, permission[:]...)

// ofBucket are the words by which a server, or the script, says that a key does not hold a bucket
// that it understands. What the script stumbles over is the key too: the script is the same for all
// of them.
var ofBucket = [...]string{"WRONGTYPE", "DRAWGATE", "user_script", "Error running script", "Error compiling script"}

// faultOf says what kind of failure a server reports.
func faultOf(text string) drawgate.Fault {
	has := func(words []string) bool {
		return slices.ContainsFunc(words, func(w string) bool { return strings.Contains(text, w) })
	}
	switch {
	case has(configuration):
		return drawgate.FaultConfiguration
	case has(notExecuted[:]):
		return drawgate.FaultTransient
	case has(ofBucket[:]):
		return drawgate.FaultBucket
	}
	return drawgate.FaultConfiguration // CROSSSLOT, EXECABORT, an unknown command
}

// failure makes an error of a call that was sent. err may be nil. keys are taken out of its text.
func failure(op string, err error, keys []string) error {
	if err == nil {
		return nil
	}
	if re, ok := rueidis.IsRedisErr(err); ok {
		return reported(op, re.Error(), keys)
	}
	if ours(err) {
		return storeError(op, err)
	}
	if neverSent(err) {
		return notSent(op, err)
	}
	return storeError(op, fmt.Errorf("%w: %w", ErrUnknownOutcome, err))
}

// reported makes an error of what a server answered. keys are taken out of it.
func reported(op, text string, keys []string) error {
	for _, k := range keys {
		text = strings.ReplaceAll(text, k, "<key>")
	}
	fault := faultOf(text)
	for _, word := range notExecuted {
		if strings.Contains(text, word) {
			return &drawgate.StoreError{Store: "redis", Op: op, Err: errors.New(text), Fault: fault}
		}
	}
	return &drawgate.StoreError{Store: "redis", Op: op, Err: fmt.Errorf("%w: %s", ErrMisconfigured, text), Fault: fault}
}

// ours reports whether the error was found on this side, in an answer or before a call.
func ours(err error) bool {
	return errors.Is(err, errAnswer) || errors.Is(err, errDamaged) || errors.Is(err, errOld) || errors.Is(err, errDisagree) || errors.Is(err, errDenied) ||
		errors.Is(err, drawgate.ErrInvalid)
}

// neverSent reports whether the call cannot have reached the server.
func neverSent(err error) bool {
	if op := (*net.OpError)(nil); errors.As(err, &op) && op.Op == "dial" {
		return true
	}
	return errors.Is(err, rueidis.ErrClosing) || errors.Is(err, rueidis.ErrNoAddr)
}

// notSent makes an error of a call that was not sent.
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
	fault := drawgate.FaultTransient
	switch {
	case errors.Is(err, errOld), errors.Is(err, errDenied):
		fault = drawgate.FaultConfiguration
	case errors.Is(err, errAnswer), errors.Is(err, errDamaged), errors.Is(err, errDisagree):
		fault = drawgate.FaultBucket
	}
	return &drawgate.StoreError{Store: "redis", Op: op, Err: err, Fault: fault}
}
