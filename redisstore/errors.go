package redisstore

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"

	"github.com/redis/rueidis"

	"github.com/drawgate/drawgate"
)

// What the Err of a [drawgate.StoreError] of this store may match.
var (
	// ErrUnknownOutcome means that a call was sent and its answer was lost: it may have been carried out.
	ErrUnknownOutcome = errors.New("the outcome is unknown")
	// ErrMisconfigured means that no retry will help: credentials, permissions, a key that holds something else, a record of a newer version.
	// Nothing was carried out.
	ErrMisconfigured = errors.New("misconfigured")
)

// notExecuted are the words in a server's error by which it says that it did not carry out the call, and may do so later. Servers before 7
// wrap an error in a script in a text of their own, so they are looked for anywhere.
var notExecuted = [...]string{
	"NOSCRIPT", "READONLY", "LOADING", "MASTERDOWN", "BUSY", "OOM", "MISCONF", "NOREPLICAS", "TRYAGAIN", "CLUSTERDOWN",
	"MOVED", "ASK", "REDIRECT", "max number of clients",
}

// failure makes an error of a call that was sent. err may be nil. keys are taken out of its text.
func failure(op string, err error, keys []string) error {
	if err == nil {
		return nil
	}
	if re, ok := rueidis.IsRedisErr(err); ok {
		text := re.Error()
		for _, k := range keys {
			text = strings.ReplaceAll(text, k, "<key>")
		}
		for _, word := range notExecuted {
			if strings.Contains(text, word) {
				return storeError(op, errors.New(text))
			}
		}
		// NOAUTH, WRONGPASS, NOPERM, WRONGTYPE, CROSSSLOT, EXECABORT, a record that the script does not understand, an unknown command.
		return storeError(op, fmt.Errorf("%w: %s", ErrMisconfigured, text))
	}
	if ours(err) {
		return storeError(op, err)
	}
	if neverSent(err) {
		return notSent(op, err)
	}
	return storeError(op, fmt.Errorf("%w: %w", ErrUnknownOutcome, err))
}

// ours reports whether the error was found on this side, in an answer or before a call.
func ours(err error) bool {
	return errors.Is(err, errAnswer) || errors.Is(err, errDamaged) || errors.Is(err, errOld) || errors.Is(err, errDisagree) ||
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
	return &drawgate.StoreError{Store: "redis", Op: op, Err: err}
}
