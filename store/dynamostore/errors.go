package dynamostore

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"

	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/smithy-go"
	smithyhttp "github.com/aws/smithy-go/transport/http"

	"github.com/drawgate/drawgate/store"
)

// Errors that a [store.Error] of this store may wrap.
var (
	// ErrThrottled means that the table, or a part of it, is asked for more than it has capacity
	// for.
	ErrThrottled = errors.New("throttled")
	// ErrMisconfigured means that no retry will help: no credentials, a missing permission, no such
	// table, another key schema.
	ErrMisconfigured = errors.New("misconfigured")

	errSkew    = fmt.Errorf("%w: clock", ErrMisconfigured)
	errItem    = errors.New("the bucket's item was changed by hand or by another program: put it back from a backup, or delete it with \"drawgate reset\", which grants again what it counted")
	errNewer   = errors.New("the bucket's item was written by a newer version of Drawgate: upgrade this process, too")
	errLate    = errors.New("the process was suspended, or its answer lost, for too long while it asked: what it took counts as spent")
	errSlow    = errors.New("its answers take too long to tell its time")
	errBusy    = errors.New("others changed the bucket each time")
	errTooLong = errors.New("the item would be too large")

	errForgotten = errors.New("it took too long to find out: others drop a process's mark")
)

// undoneError is why a job was not carried out. It matches [store.ErrNothingDone].
type undoneError struct{ err error }

func (e *undoneError) Error() string   { return store.ErrNothingDone.Error() + ": " + e.err.Error() }
func (e *undoneError) Unwrap() []error { return []error{store.ErrNothingDone, e.err} }

// partly returns the error of a call of which other parts were carried out, or may have been.
func partly(err error) error {
	if e, ok := errors.AsType[*undoneError](err); ok {
		err = e.err
	}
	return fmt.Errorf("%w: %w", store.ErrUnknownOutcome, err)
}

// outcome is what an error says about a call.
type outcome uint8

const (
	notDone   outcome = iota // it was not carried out, and may be sent again
	throttled                // the same, and somebody asks for too much
	conflict                 // its condition failed
	unknown                  // it may have been carried out
	hopeless                 // it was not carried out, and will not be
)

// classify says what an error of a call means.
func classify(err error) outcome {
	if errors.Is(err, errItem) || errors.Is(err, errNewer) || errors.Is(err, ErrMisconfigured) {
		return hopeless
	}
	if e := (*types.ConditionalCheckFailedException)(nil); errors.As(err, &e) {
		return conflict
	}
	if e := (*types.TransactionCanceledException)(nil); errors.As(err, &e) {
		return cancelled(e)
	}
	if api := smithy.APIError(nil); errors.As(err, &api) {
		switch code := api.ErrorCode(); {
		case strings.Contains(code, "Throttl"), code == "ProvisionedThroughputExceededException",
			code == "RequestLimitExceeded", code == "LimitExceededException":
			return throttled
		case code == "TransactionConflictException", code == "ReplicatedWriteConflictException",
			code == "TransactionInProgressException":
			return notDone
		case code == "InternalServerError", code == "InternalFailure", code == "ServiceUnavailable",
			code == "RequestTimeout":
			return unknown
		}
		if re := (*awshttp.ResponseError)(nil); errors.As(err, &re) &&
			re.HTTPStatusCode() >= http.StatusInternalServerError {
			return unknown
		}
		return hopeless
	}
	if op := (*net.OpError)(nil); errors.As(err, &op) && op.Op == "dial" {
		return notDone
	}
	if re := (*awshttp.ResponseError)(nil); errors.As(err, &re) && re.HTTPStatusCode() >= http.StatusBadRequest &&
		re.HTTPStatusCode() < http.StatusInternalServerError {
		return hopeless
	}
	if signing := (*smithy.OperationError)(nil); errors.As(err, &signing) && !sent(err) {
		return hopeless
	}
	return unknown
}

// sent reports whether an error may come from a request that was sent.
func sent(err error) bool {
	re, canceled := (*smithyhttp.RequestSendError)(nil), (*smithy.CanceledError)(nil)
	return errors.As(err, &re) || errors.As(err, &canceled) || errors.Is(err, context.DeadlineExceeded) ||
		errors.Is(err, context.Canceled) ||
		errors.As(err, new(*smithy.DeserializationError)) || errors.As(err, new(*awshttp.ResponseError))
}

// failure returns the error of an operation.
func failure(op string, err error) error {
	if err == nil {
		return nil
	}
	if errors.Is(err, store.ErrClosed) {
		return store.ErrClosed
	}
	se := &store.Error{Store: "dynamodb", Op: op, Err: err, Fault: store.FaultTransient}
	switch {
	case errors.Is(err, errItem), errors.Is(err, errNewer), errors.Is(err, errTooLong):
		se.Fault = store.FaultBucket
	case errors.Is(err, ErrMisconfigured):
		se.Fault = store.FaultConfiguration
	}
	return se
}

// explain turns what the SDK says into what an operator can act on. Its own text may repeat the
// item's key, so only the service's code and message are kept.
func (s *Store) explain(err error) error {
	if errors.Is(err, errItem) || errors.Is(err, errNewer) || errors.Is(err, ErrMisconfigured) {
		return err
	}
	table, api := s.table, smithy.APIError(nil)
	if !errors.As(err, &api) {
		if classify(err) == hopeless {
			return fmt.Errorf("%w: the request cannot be signed: are there credentials? AWS's environment variables, profiles and roles are looked at (%s)", ErrMisconfigured, plain(err))
		}
		return fmt.Errorf("no answer: %w", cause(err))
	}
	switch code := api.ErrorCode(); {
	case code == "ResourceNotFoundException":
		return fmt.Errorf("%w: there is no table %q in this region: \"drawgate table create\" makes it, and \"drawgate table check\" says which region was asked", ErrMisconfigured, table)
	case code == "AccessDeniedException":
		return fmt.Errorf("%w: a permission is missing: \"drawgate table policy\" prints those that are needed (%s)",
			ErrMisconfigured, action(api.ErrorMessage()))
	case code == "ExpiredTokenException", code == "UnrecognizedClientException", code == "InvalidSignatureException",
		code == "MissingAuthenticationTokenException":
		return fmt.Errorf("%w: AWS does not accept the credentials (%s)", ErrMisconfigured, code)
	case code == "ValidationException" && strings.Contains(api.ErrorMessage(), "key element does not match"),
		code == "ValidationException" && strings.Contains(api.ErrorMessage(), "missing the key"),
		code == "ValidationException" && strings.Contains(api.ErrorMessage(), "number of conditions"):
		return fmt.Errorf("%w: table %q has another key: it needs the partition key %q of type string and no sort key",
			ErrMisconfigured, table, KeyAttribute)
	case code == "ValidationException" && strings.Contains(api.ErrorMessage(), "size has exceeded"),
		code == "TransactionCanceledException" && classify(err) == hopeless:
		return errTooLong
	case classify(err) == throttled:
		return fmt.Errorf("%w (%s)", ErrThrottled, code)
	case classify(err) == hopeless:
		return fmt.Errorf("%w: %s", ErrMisconfigured, code)
	default:
		return errors.New(code)
	}
}

// action returns the action that an AccessDeniedException names, such as dynamodb:UpdateItem.
func action(message string) string {
	for word := range strings.FieldsSeq(message) {
		if strings.HasPrefix(word, "dynamodb:") {
			return strings.Trim(word, ".,;\"'")
		}
	}
	return "AccessDeniedException"
}

// cause returns why there was no answer: that the caller left, or gave too little time, must be
// told from a store that does not answer.
func cause(err error) error {
	for _, of := range []error{context.DeadlineExceeded, context.Canceled} {
		if errors.Is(err, of) {
			return of
		}
	}
	return errors.New(plain(err))
}

// plain returns the innermost text of an error: what is around it may repeat the request.
func plain(err error) string {
	for {
		next := errors.Unwrap(err)
		if next == nil {
			return err.Error()
		}
		err = next
	}
}
