package client

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/drawgate/drawgate/api"
	"github.com/drawgate/drawgate/internal/sleep"
)

// The pauses between attempts.
const (
	firstPause = 50 * time.Millisecond // doubling, with jitter
	longest    = 5 * time.Second
)

// maxAnswer is how many bytes of an answer are read.
const maxAnswer = 16 << 20

// call is one request to the server.
type call struct {
	method, path string
	body         any           // nil: none
	wait         time.Duration // how long the server may take to answer, in addition to the client's timeout
	again        bool          // it may safely be carried out twice

	sent     *time.Time         // is set to when the last attempt was sent; may be nil
	server   string             // its address; set when the call is sent
	progress func(api.Progress) // is told what a take waits for; may be nil
}

// do sends a call until there is an answer, and decodes it into out. unsure reports that an earlier
// attempt may have been carried out.
func (c *Client) do(ctx context.Context, q call, out any) (unsure bool, err error) {
	var body []byte
	if q.body != nil {
		if body, err = json.Marshal(q.body); err != nil {
			return false, fmt.Errorf("client: %s %s: %w", q.method, q.path, err)
		}
	}
	for i := 1; ; i++ {
		pause, err := c.attempt(ctx, q, body, out)
		if err == nil || i >= c.attempts || !again(q, err) || ctx.Err() != nil {
			return unsure, err
		}
		unsure = unsure || maybe(err)
		if !sleepInTime(ctx, max(pause, backoff(i))) {
			return unsure, err
		}
	}
}

// again reports whether a call that failed with err may be sent again.
func again(q call, err error) bool {
	if p, ok := errors.AsType[*api.Problem](err); ok {
		return q.again && (p.Code == api.CodeStoreUnavailable || p.Code == api.CodeClosing)
	}
	e, ok := errors.AsType[*Error](err)
	return ok && (q.again || !e.Maybe && refused(err))
}

// refused reports whether the connection failed, so that nothing was sent.
func refused(err error) bool {
	if _, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		return true // nothing is sent to a server with another identity
	}
	e, ok := errors.AsType[*net.OpError](err)
	return ok && e.Op == "dial"
}

// maybe reports whether a call that failed with err may have been carried out.
func maybe(err error) bool {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Maybe
	}
	return Code(err) == api.CodeStoreUnavailable
}

// attempt sends a call once. pause is the time that the server asks to wait before the next
// attempt.
func (c *Client) attempt(ctx context.Context, q call, body []byte, out any) (pause time.Duration, err error) {
	if c.timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, c.timeout+q.wait)
		defer cancel()
	}
	res, err := c.send(ctx, &q, body)
	if err != nil {
		return 0, err
	}
	defer func() { _ = res.Body.Close() }()
	text, err := q.answer(res)
	if p, ok := errors.AsType[*api.Problem](err); ok {
		return 0, p
	}
	if err != nil {
		return 0, q.failed(true, err)
	}
	return retryAfter(res.Header), q.read(res, text, out)
}

// send sends a request, and returns the answer's beginning.
func (c *Client) send(ctx context.Context, q *call, body []byte) (*http.Response, error) {
	q.server = c.base
	if q.sent != nil {
		*q.sent = time.Now()
	}
	req, err := http.NewRequestWithContext(ctx, q.method, c.base+q.path, bytes.NewReader(body))
	if err != nil {
		return nil, q.failed(false, err)
	}
	if q.body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	if q.progress != nil {
		req.Header.Set("Accept", api.ProgressType+", application/json")
	}
	if c.token != "" {
		req.Header.Set("Authorization", "Bearer "+c.token)
	}
	res, err := c.http.Do(req)
	if err != nil {
		return nil, q.failed(!refused(err), err)
	}
	return res, nil
}

// answer reads an answer. Of lines of progress it is the last one.
func (q *call) answer(res *http.Response) ([]byte, error) {
	body := io.LimitReader(res.Body, maxAnswer)
	if q.progress != nil && mediaType(res) == api.ProgressType {
		return lastLine(body, q.progress)
	}
	return io.ReadAll(body)
}

func mediaType(res *http.Response) string {
	media, _, _ := strings.Cut(res.Header.Get("Content-Type"), ";")
	return media
}

// read decodes an answer.
func (q *call) read(res *http.Response, text []byte, out any) error {
	switch media := mediaType(res); {
	case media == api.ProblemType:
		var p api.Problem
		if err := json.Unmarshal(text, &p); err != nil || p.Code == "" {
			return q.failed(true, errors.New("a malformed problem"))
		}
		return &p
	case res.StatusCode == http.StatusOK && (media == "application/json" ||
		q.progress != nil && media == api.ProgressType), res.StatusCode == http.StatusServiceUnavailable &&
		media == "application/json":
		if err := json.Unmarshal(text, out); err != nil {
			return q.failed(true, err)
		}
		return nil
	}
	return q.failed(true,
		fmt.Errorf("the answer has status %s and is not from a Drawgate server: is the address right?", res.Status))
}

func (q *call) failed(maybe bool, err error) error {
	path, _, _ := strings.Cut(q.path, "?") // a query may contain keys
	return &Error{Op: q.method + " " + path, Server: q.server, Maybe: maybe, Err: withoutURL(err)}
}

// withoutURL removes what [http.Client] adds to errors: the address, which may contain keys.
func withoutURL(err error) error {
	if e, ok := errors.AsType[*url.Error](err); ok {
		return e.Err
	}
	return err
}

func retryAfter(h http.Header) time.Duration {
	n, err := strconv.Atoi(h.Get("Retry-After"))
	if err != nil || n < 0 {
		return 0
	}
	return min(time.Duration(n)*time.Second, longest)
}

// backoff returns the pause after attempt i, with jitter.
func backoff(i int) time.Duration {
	d := min(firstPause<<(i-1), longest)
	return d/2 + rand.N(d) //nolint:gosec // jitter needs no secrecy
}

// sleepInTime reports whether d passed before ctx ended. If d would not pass in time, it does not
// wait.
func sleepInTime(ctx context.Context, d time.Duration) bool {
	if end, ok := ctx.Deadline(); ok && time.Until(end) < d {
		return false
	}
	return sleep.For(ctx, d)
}
