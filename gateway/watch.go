package gateway

import (
	"context"
	"errors"
	"io"
	"net/http"
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
	err    error
	secret *redactor // of the provider's key, which a damaged answer may quote
}

func (e *callError) Error() string {
	return "gateway: the call to the upstream failed: " + e.secret.text(e.err.Error())
}
func (e *callError) Unwrap() error { return e.err }

// watch is a RoundTripper that gives answers up that take too long.
type watch struct {
	base           http.RoundTripper
	secret         *redactor // of the provider's key
	silence, whole time.Duration
}

// RoundTrip implements http.RoundTripper.
func (w *watch) RoundTrip(r *http.Request) (*http.Response, error) {
	ctx, cancel := context.WithCancelCause(r.Context())
	b := &watched{ctx: ctx, cancel: cancel, silence: w.silence, secret: w.secret}
	b.whole = time.AfterFunc(w.whole, func() { cancel(errTooLong) })
	b.quiet = time.AfterFunc(w.silence, func() { cancel(errSilent) })
	resp, err := w.base.RoundTrip(r.WithContext(ctx))
	b.quiet.Stop()
	if err != nil {
		err = b.why(err)
		b.end()
		return nil, &callError{err, w.secret}
	}
	b.body, resp.Body = resp.Body, b
	return resp, nil
}

// watched is the body of an answer.
type watched struct {
	ctx          context.Context //nolint:containedctx // of the call to the provider, which is ended from here
	cancel       context.CancelCauseFunc
	silence      time.Duration
	secret       *redactor
	whole, quiet *time.Timer
	body         io.ReadCloser
}

// why returns why the answer ended: err, unless it was given up.
func (b *watched) why(err error) error {
	cause := context.Cause(b.ctx)
	if errors.Is(cause, errSilent) || errors.Is(cause, errTooLong) || errors.Is(cause, errCut) {
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
		err = &callError{b.why(err), b.secret}
	}
	return n, err
}

// Close implements io.Closer.
func (b *watched) Close() error {
	err := b.body.Close()
	b.end()
	return err
}
