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
	o.seen = seen{status: map[int]int64{}, refused: map[string]int64{}, closed: map[string]bool{}, waits: map[group][]*waited{}}
	start := func(g group) {
		w := &waited{}
		o.seen.waits[g] = append(o.seen.waits[g], w)
		c.group.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				o.call(ctx, c.client, g, w, n)
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

// call makes a call until it is answered, coming back when it is told to.
func (o *overage) call(ctx context.Context, c *http.Client, g group, w *waited, n int) {
	body := o.body(g)
	for began := time.Now(); ctx.Err() == nil; {
		status, message, pause, took, err := o.send(ctx, c, g, n%2 == 1, body, began)
		o.mu.Lock()
		if ctx.Err() == nil {
			o.seen.status[status]++
			if status >= http.StatusBadRequest {
				o.seen.refused[fmt.Sprint(status, " ", message)]++
				o.seen.closed[g.model] = true
			}
			if status == http.StatusOK {
				w.calls, w.sum, w.worst = w.calls+1, w.sum+took, max(w.worst, took)
			}
			if status != 0 && err != nil {
				o.seen.cut++
			}
		}
		o.mu.Unlock()
		if status == http.StatusOK {
			return
		}
		sleep.For(ctx, pause)
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

// send sends a call once. message is the beginning of a refusal's, and took the time until the
// answer began.
func (o *overage) send(ctx context.Context, c *http.Client, g group, stream bool, body string, began time.Time) (status int, message string, pause, took time.Duration, err error) {
	operation := "generateContent"
	if stream {
		operation = "streamGenerateContent?alt=sse"
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+o.addresses[g.gateway]+"/gemini/v1beta/models/"+g.model+":"+operation, strings.NewReader(body))
	if err != nil {
		return 0, "", time.Second, 0, err
	}
	key := "normal-0123456789"
	if g.urgent {
		key = "urgent-0123456789"
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("X-Goog-Api-Key", key)
	resp, err := c.Do(r)
	if err != nil {
		return 0, "", 200 * time.Millisecond, 0, err
	}
	defer resp.Body.Close()
	took, pause = time.Since(began), 200*time.Millisecond
	if ms, err := strconv.ParseInt(resp.Header.Get("Retry-After-Ms"), 10, 64); err == nil {
		pause = time.Duration(ms) * time.Millisecond
	}
	text, err := io.ReadAll(resp.Body)
	if resp.StatusCode >= http.StatusBadRequest {
		var refusal struct{ Error struct{ Message string } }
		_ = json.Unmarshal(text, &refusal) // not every refusal is JSON
		message = numbers.ReplaceAllString(refusal.Error.Message, "…")
		message = message[:min(len(message), 100)]
	}
	return resp.StatusCode, message, pause, took, err
}

// numbers are left out of messages.
var numbers = regexp.MustCompile(`[0-9][0-9.]*`)
