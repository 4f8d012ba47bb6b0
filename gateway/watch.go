package gateway

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"time"
)

const (
	defaultSilence  = 10 * time.Minute // models that think say nothing for minutes
	defaultDuration = time.Hour
)

// Errors of answers that take too long. They are failures of the provider.
var (
	errSilent  = errors.New("gateway: the upstream has said nothing for too long")
	errTooLong = errors.New("gateway: the upstream's answer lasts too long")
)

// callError is a failure on the way to the provider, or of it, after a call was granted.
type callError struct {
	err error
	key string // the provider's, which a damaged answer may quote; "" if there is none
}

func (e *callError) Error() string {
	text := e.err.Error()
	if e.key != "" {
		text = strings.ReplaceAll(text, e.key, "(secret)")
	}
	return "gateway: the call to the upstream failed: " + text
}
func (e *callError) Unwrap() error { return e.err }

// watch is a RoundTripper that gives answers up that take too long.
type watch struct {
	base           http.RoundTripper
	key            string // of the provider
	silence, whole time.Duration
}

// RoundTrip implements http.RoundTripper.
func (w *watch) RoundTrip(r *http.Request) (*http.Response, error) {
	ctx, cancel := context.WithCancelCause(r.Context())
	b := &watched{ctx: ctx, cancel: cancel, silence: w.silence, key: w.key}
	b.whole = time.AfterFunc(w.whole, func() { cancel(errTooLong) })
	b.quiet = time.AfterFunc(w.silence, func() { cancel(errSilent) })
	resp, err := w.base.RoundTrip(r.WithContext(ctx))
	b.quiet.Stop()
	if err != nil {
		err = b.why(err)
		b.end()
		return nil, &callError{err, w.key}
	}
	b.body, resp.Body = resp.Body, b
	return resp, nil
}

// watched is the body of an answer.
type watched struct {
	ctx          context.Context //nolint:containedctx // of the call to the provider, which is ended from here
	cancel       context.CancelCauseFunc
	silence      time.Duration
	key          string
	whole, quiet *time.Timer
	body         io.ReadCloser
}

// why returns why the answer ended: err, unless it was given up.
func (b *watched) why(err error) error {
	if cause := context.Cause(b.ctx); errors.Is(cause, errSilent) || errors.Is(cause, errTooLong) || errors.Is(cause, errCut) {
		return cause
	}
	return err
}

func (b *watched) end() {
	b.whole.Stop()
	b.quiet.Stop()
	b.cancel(nil)
}

// Read implements io.Reader. The time between two reads is the caller's, not the provider's.
func (b *watched) Read(p []byte) (int, error) {
	b.quiet.Reset(b.silence)
	n, err := b.body.Read(p)
	b.quiet.Stop()
	if err != nil && !errors.Is(err, io.EOF) {
		err = &callError{b.why(err), b.key}
	}
	return n, err
}

// Close implements io.Closer.
func (b *watched) Close() error {
	err := b.body.Close()
	b.end()
	return err
}
