package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/drawgate/drawgate/api"
)

// HistoryQuery says which events of the store's history are wanted. The zero value means those of
// the last 24 hours.
type HistoryQuery struct {
	Since, Until time.Time // Since: 24 hours ago if zero; Until: no end if zero
	Policy, Op   string    // "": all
	Tenant, Key  *string   // nil: all
	Labels       []string  // NAME=VALUE: only events with all of them
	Last         int       // only so many, the newest; 0: all
}

func (q *HistoryQuery) path() string {
	v := url.Values{"label": q.Labels}
	for name, t := range map[string]time.Time{"since": q.Since, "until": q.Until} {
		if !t.IsZero() {
			v.Set(name, t.UTC().Format(time.RFC3339Nano))
		}
	}
	for name, s := range map[string]string{"policy": q.Policy, "op": q.Op} {
		if s != "" {
			v.Set(name, s)
		}
	}
	for name, s := range map[string]*string{"tenant": q.Tenant, "key": q.Key} {
		if s != nil {
			v.Set(name, *s)
		}
	}
	if q.Last > 0 {
		v.Set("last", strconv.Itoa(q.Last))
	}
	return "/v1/history?" + v.Encode()
}

// History yields events of the store's history, the oldest first, until there are no more or it
// yields an error: then events are missing. It needs the server's admin listener. It is asked for
// once, and bounded by ctx only.
func (c *Client) History(ctx context.Context, query HistoryQuery) iter.Seq2[api.Event, error] {
	q := call{method: http.MethodGet, path: query.path()}
	return func(yield func(api.Event, error) bool) {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel() // of a reader that has seen enough
		res, err := c.send(ctx, &q, nil)
		if err != nil {
			yield(api.Event{}, err)
			return
		}
		defer func() { _ = res.Body.Close() }()
		if res.StatusCode != http.StatusOK || mediaType(res) != api.HistoryType {
			yield(api.Event{}, q.notLines(res))
			return
		}
		for d := json.NewDecoder(res.Body); ; {
			var e api.Event
			switch err := d.Decode(&e); {
			case errors.Is(err, io.EOF):
				return
			case err != nil:
				yield(api.Event{}, q.failed(false, fmt.Errorf("the history ended too early: %w", err)))
				return
			case !yield(e, nil):
				return
			}
		}
	}
}

// notLines is the error of an answer that has no lines.
func (q *call) notLines(res *http.Response) error {
	text, err := io.ReadAll(io.LimitReader(res.Body, maxAnswer))
	if err != nil {
		return q.failed(false, err)
	}
	var other any
	if err := q.read(res, text, &other); err != nil {
		return err
	}
	return q.failed(false, errors.New("the answer is not a history: is the address right?"))
}
