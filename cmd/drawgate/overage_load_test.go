//go:build unix

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/drawgate/drawgate/internal/sleep"
)

// group is callers who wait for the same: within it nobody should wait much longer than the others.
type group struct {
	gateway int
	model   string
	size    int
	urgent  bool
}

// waited is how long the calls of one caller took until the answer began, refusals included.
type waited struct {
	calls      int
	sum, worst time.Duration
}

// seen is what callers saw.
type seen struct {
	status  map[int]int64    // answers; 0: the connection was lost
	refused map[string]int64 // by status and message
	closed  map[string]bool  // models of which a call was refused
	cut     int64            // answers that broke off
	waits   map[group][]*waited
}

// crowd is all callers.
type crowd struct {
	cancel context.CancelFunc
	group  sync.WaitGroup
	client *http.Client
}

// stop lets callers leave, in the middle of their calls.
func (c *crowd) stop() {
	c.cancel()
	c.group.Wait()
	c.client.CloseIdleConnections()
}

// load starts callers, spread evenly over gateways, models and sizes of prompts. Every fifth is
// urgent. Each gateway has one caller more of each model whose quota the provider closes.
func (o *overage) load() *crowd {
	ctx, cancel := context.WithCancel(o.t.Context())
	c := &crowd{cancel: cancel, client: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: o.callers}}}
	o.seen = seen{
		status: map[int]int64{}, refused: map[string]int64{}, closed: map[string]bool{},
		waits: map[group][]*waited{},
	}
	start := func(g group) {
		w := &waited{}
		o.seen.waits[g] = append(o.seen.waits[g], w)
		c.group.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				o.call(ctx, c.client, g, w, n%2 == 1)
			}
		})
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	for i := range o.callers {
		at, rest := i%o.gateways, i/o.gateways
		model, rest := rest%len(o.tiers), rest/len(o.tiers)
		start(group{at, o.tiers[model].model, rest % len(sizes), rest/len(sizes)%5 == 4})
	}
	for _, m := range o.models()[len(o.tiers):] {
		for i := range o.gateways {
			start(group{i, m.model, 0, false})
		}
	}
	return c
}

// call makes a call until it is answered, coming back when it is told to. A wait that lasts until
// the end counts as the longest one.
func (o *overage) call(ctx context.Context, c *http.Client, g group, w *waited, stream bool) {
	body := o.body(g)
	began := time.Now()
	for ctx.Err() == nil {
		a := o.send(ctx, c, g, stream, body)
		if ctx.Err() != nil {
			break
		}
		o.mu.Lock()
		o.seen.status[a.status]++
		if a.cut {
			o.seen.cut++
		}
		if a.status >= http.StatusBadRequest {
			o.seen.refused[fmt.Sprint(a.status, " ", a.message)]++
			o.seen.closed[g.model] = true
		}
		if a.status == http.StatusOK {
			took := a.at.Sub(began)
			w.calls, w.sum, w.worst = w.calls+1, w.sum+took, max(w.worst, took)
		}
		o.mu.Unlock()
		if a.status == http.StatusOK {
			return
		}
		sleep.For(ctx, a.pause)
	}
	w.worst = max(w.worst, time.Since(began))
	if w.calls == 0 {
		w.sum = w.worst
	}
}

// body returns a prompt of a size, and what is to be answered. Small and medium ones are words of
// five bytes, so that the upper bound is five times the tokens; large ones are signs, of which each
// is a token.
func (o *overage) body(g group) string {
	tokens := o.tiers[0].tokens
	for _, m := range o.tiers {
		if m.model == g.model {
			tokens = m.tokens
		}
	}
	text := strings.Repeat("word ", tokens[g.size])
	if g.size == 2 {
		text = strings.Repeat("!?", tokens[g.size]/2)
	}
	return fmt.Sprintf(`{"contents":[{"role":"user","parts":[{"text":"%s\nsimulate: output=20 delay=50ms chunk=10ms"}]}],"generationConfig":{"maxOutputTokens":50}}`,
		text)
}

// answer is what a caller got.
type answer struct {
	status  int           // 0: the connection was lost
	at      time.Time     // when it began
	pause   time.Duration // until the caller may come back
	message string        // of a refusal: its beginning
	cut     bool          // it broke off
}

// send sends a call once.
func (o *overage) send(ctx context.Context, c *http.Client, g group, stream bool, body string) answer {
	a := answer{pause: 200 * time.Millisecond}
	operation := "generateContent"
	if stream {
		operation = "streamGenerateContent?alt=sse"
	}
	url := "http://" + o.addresses[g.gateway] + "/gemini/v1beta/models/" + g.model + ":" + operation
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		return a
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("X-Goog-Api-Key", "normal-0123456789")
	if g.urgent {
		r.Header.Set("X-Goog-Api-Key", "urgent-0123456789")
	}
	resp, err := c.Do(r)
	if err != nil {
		return a
	}
	defer resp.Body.Close()
	a.status, a.at = resp.StatusCode, time.Now()
	if ms, err := strconv.ParseInt(resp.Header.Get("Retry-After-Ms"), 10, 64); err == nil {
		a.pause = time.Duration(ms) * time.Millisecond
	}
	text, err := io.ReadAll(resp.Body)
	a.cut = err != nil
	if a.status >= http.StatusBadRequest {
		var refusal struct{ Error struct{ Message string } }
		_ = json.Unmarshal(text, &refusal) // not every refusal is JSON
		a.message = numbers.ReplaceAllString(strings.ReplaceAll(refusal.Error.Message, "\n", " "), "…")
		a.message = a.message[:min(len(a.message), 100)]
	}
	return a
}

// numbers are left out of messages.
var numbers = regexp.MustCompile(`[0-9][0-9.]*`)
