package main

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/drawgate/drawgate/benchmarks/internal/chat"
)

// seenTime is how long a stream waits to hear that its last event was seen. It is no measure of
// speed: an event that is held back is never seen, because the next one is not sent.
const seenTime = 20 * time.Second

// eventGap is the time between the events of a stream: without it a proxy gets most of a stream at
// once, and has read it to its end before it could be cut.
const eventGap = time.Millisecond

// upstream answers calls at once.
type upstream struct {
	mu   sync.Mutex
	seen map[string]chan struct{} // guarded by mu; by the stream's seed
}

func newUpstream() *upstream { return &upstream{seen: map[string]chan struct{}{}} }

// ServeHTTP implements http.Handler.
func (u *upstream) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == chat.SeenPath {
		u.channel(r.URL.RawQuery) <- struct{}{}
		w.WriteHeader(http.StatusNoContent)
		return
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // the caller has left
	}
	if !bytes.Contains(body, []byte(`"stream":true`)) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, chat.Answer) // the caller may have left
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	u.stream(r.Context(), w, r.Header, bytes.Contains(body, []byte(`"include_usage":true`)))
}

// stream sends the events of a stream, at the pace that the request asks for.
func (u *upstream) stream(ctx context.Context, w http.ResponseWriter, h http.Header, usage bool) {
	id, pace := h.Get(chat.HeaderSeed), h.Get(chat.HeaderPace)
	seed, _ := strconv.ParseUint(id, 10, 64)
	events := chat.Events(seed, usage)
	out := http.NewResponseController(w)
	send := func(event []byte) {
		_, _ = w.Write(event) // ctx ends when the caller leaves
		_ = out.Flush()
	}
	if every, err := time.ParseDuration(pace); err == nil {
		send(events[0])
		for sleep(ctx, every) {
			send(events[0]) // until the caller leaves
		}
		return
	}
	if pace == chat.PaceSeen {
		defer u.forget(id)
	}
	for i, e := range events {
		if i > 0 && !sleep(ctx, eventGap) {
			return
		}
		send(e)
		if pace == chat.PaceSeen && chat.Shown(e) && !u.wait(ctx, id) {
			panic(http.ErrAbortHandler) // the caller sees a stream that was cut
		}
	}
}

func sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}

// channel is where a stream hears that its caller has an event.
func (u *upstream) channel(id string) chan struct{} {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.seen[id] == nil {
		u.seen[id] = make(chan struct{}, 1)
	}
	return u.seen[id]
}

func (u *upstream) forget(id string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	delete(u.seen, id)
}

// wait waits until the caller has seen an event.
func (u *upstream) wait(ctx context.Context, id string) bool {
	select {
	case <-u.channel(id):
		return true
	case <-ctx.Done():
	case <-time.After(seenTime):
	}
	return false
}
