package gateway_test

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/drawgate/drawgate/gateway"
	"github.com/drawgate/drawgate/internal/needs"
	"github.com/drawgate/drawgate/outbound"
)

// endless is a request that does not end.
type endless struct{}

var letters = bytes.Repeat([]byte("x"), 64<<10)

func (endless) Read(p []byte) (int, error) { return copy(p, letters), nil }

// TestLargeRequests: a prompt of 50 MB, with its length or without, and a body that does not end
// get a clear answer.
//
// req: C12
func TestLargeRequests(t *testing.T) {
	needs.NoRace(t) // it reads large bodies, one after the other
	t.Parallel()
	b := newBench(t, func(s *setup) { s.options.MaxBody = 8 << 20 })
	const size = 50 << 20
	prompt := func() io.Reader {
		return io.MultiReader(strings.NewReader(`{"model":"gpt-4o","messages":[{"role":"user","content":"`),
			io.LimitReader(endless{}, size), strings.NewReader(`"}]}`))
	}
	for name, body := range map[string]struct {
		r    io.Reader
		size int64
	}{"its length": {prompt(), size + 60}, "no length": {prompt(), -1}, "no end": {endless{}, -1}} {
		r := b.raw(t.Context(), http.MethodPost, "/openai/v1/chat/completions", "", "Authorization: Bearer "+alice)
		r.Body, r.ContentLength, r.GetBody = io.NopCloser(body.r), body.size, nil
		got := b.do(r)
		if name == "no end" && got.err != nil {
			continue // it does not stop sending, and is cut off
		}
		if got.status != http.StatusRequestEntityTooLarge || got.err != nil || !strings.Contains(got.body, "max_body") {
			t.Errorf("%s: got %d %v %s, want 413", name, got.status, got.err, got.body)
		}
	}
	// One that fits passes.
	body := `{"model":"gpt-4o","max_tokens":5,"messages":[{"role":"user","content":"` + strings.Repeat("word ", 1<<20) +
		`"}]}`
	if got := b.do(b.raw(t.Context(), http.MethodPost, "/openai/v1/chat/completions", body,
		"Authorization: Bearer "+alice)); got.status != http.StatusOK {
		t.Errorf("a prompt of 5 MiB: got %d %s", got.status, got.body)
	}
}

// TestManyLargeRequests: requests that are too large together are refused, and the memory of those
// that have ended is free for others.
//
// req: C12
func TestManyLargeRequests(t *testing.T) {
	t.Parallel()
	const size = 1 << 20
	inBubble(t, func(s *setup) {
		onePerMinute(s)
		s.options.MaxBody, s.options.Bodies = size, 5*size/2
	}, func(t *testing.T, b *bench) {
		call := func(size int64, key string) reply {
			r := b.request(t.Context(), "openai", false, strings.Repeat("x", int(size)-1000),
				"Authorization: Bearer "+key)
			if size%2 == 1 {
				r.ContentLength = -1
			}
			return b.do(r)
		}
		b.call("openai", false, "first")
		var group sync.WaitGroup
		for _, key := range []string{alice, bob} {
			group.Go(func() {
				if got := call(size, key); got.status != http.StatusOK {
					t.Errorf("got %d %s", got.status, got.body)
				}
			})
		}
		synctest.Wait() // they wait in the queue
		for _, n := range []int64{size, size - 1, 10_000} {
			got := call(n, alice)
			if n > 10_000 && (got.status != http.StatusServiceUnavailable || got.header.Get("Retry-After") != "1") {
				t.Errorf("%d bytes: got %d %v %s, want 503", n, got.status, got.header, got.body)
			}
		}
		group.Wait()
		for range 4 {
			if got := call(size-1, alice); got.status != http.StatusOK {
				t.Errorf("afterwards: got %d %s", got.status, got.body)
			}
		}
	})
}

// TestSlowUploads: requests that have not come yet take no memory from the others, whatever length
// they announce, or none.
//
// req: C12
func TestSlowUploads(t *testing.T) {
	t.Parallel()
	const size = 1 << 20
	inBubble(t, func(s *setup) { s.options.MaxBody, s.options.Bodies = size, 2*size }, func(t *testing.T, b *bench) {
		var group sync.WaitGroup
		var open []*io.PipeWriter
		for i := range 8 {
			from, to := io.Pipe()
			open = append(open, to)
			r := b.request(t.Context(), "openai", false, "")
			if r.Body, r.ContentLength = from, size; i%2 == 0 {
				r.ContentLength = -1
			}
			group.Go(func() { b.do(r) })
		}
		synctest.Wait()
		if got := b.call("openai", false, "Hello!"); got.status != http.StatusOK {
			t.Errorf("got %d %s", got.status, got.body)
		}
		for _, to := range open {
			to.Close()
		}
		group.Wait()
	})
}

// TestTooLargeUploads: a request that is too large, and goes on, takes no memory from the others.
//
// req: C12
func TestTooLargeUploads(t *testing.T) {
	t.Parallel()
	const size = 1 << 20
	inBubble(t, func(s *setup) { s.options.MaxBody, s.options.Bodies = size, size }, func(t *testing.T, b *bench) {
		from, to := io.Pipe()
		r := b.request(t.Context(), "openai", false, "")
		r.Body, r.ContentLength = from, -1
		done := make(chan reply)
		go func() { done <- b.do(r) }()
		io.CopyN(to, endless{}, size+1)
		synctest.Wait() // it has been read so far
		if got := b.call("openai", false, "Hello!"); got.status != http.StatusOK {
			t.Errorf("got %d %s", got.status, got.body)
		}
		to.Close()
		if got := <-done; got.status != http.StatusRequestEntityTooLarge {
			t.Errorf("the large one: got %d %s, want 413", got.status, got.body)
		}
	})
}

// TestCompressionBombs: a compressed request is refused unread, and so is a compressed answer,
// which nobody asked for and which may have the provider's key in it, without being unpacked here.
//
// req: C12
func TestCompressionBombs(t *testing.T) {
	needs.NoRace(t) // it packs and reads large bodies, one after the other
	t.Parallel()
	var bomb bytes.Buffer
	z, err := gzip.NewWriterLevel(&bomb, gzip.BestSpeed)
	if err != nil {
		t.Fatal(err)
	}
	io.CopyN(z, endless{}, 64<<20)
	z.Close()
	b := newBench(t, func(s *setup) {
		s.upstream = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			io.Copy(io.Discard, r.Body)
			w.Header().Set("Content-Type", "application/json")
			w.Header().Set("Content-Encoding", "gzip")
			w.Write(bomb.Bytes())
		})
	})
	if got := b.do(b.raw(t.Context(), http.MethodPost, "/openai/v1/chat/completions", bomb.String(),
		"Authorization: Bearer "+alice, "Content-Encoding: gzip")); got.status != http.StatusBadRequest {
		t.Errorf("got %d %s, want 400", got.status, got.body)
	}
	r := b.request(t.Context(), "openai", false, "Hello!", "Accept-Encoding: gzip")
	if got := b.do(r); got.status != http.StatusBadGateway || !strings.Contains(got.body, "compressed") ||
		got.header.Get("Content-Encoding") != "" {
		t.Errorf("got %d with %d bytes, want 502", got.status, len(got.body))
	}
	b.settled()
	if used := b.used("upstream", "account"); used["rpm"] != 1 || used["tokens"] < 200 {
		t.Errorf("%v used, want that the estimate stands for an answer that cannot be read", used)
	}
}

// TestStrangeAnswers: whatever the provider answers passes, and what cannot be counted counts as
// estimated.
//
// req: C12
func TestStrangeAnswers(t *testing.T) {
	t.Parallel()
	answers := []string{
		"", "\x00\xff", "null", "[]", "{}", `"text"`, strings.Repeat("[", 10_000),
		`{"usage":{"prompt_tokens":1e99,"completion_tokens":-5}}`,
		`{"usage":{"prompt_tokens":1,"completion_tokens":1,"total_tokens":999999999999999999999}}`, "data: {\n\n",
		"data: [DONE]", strings.Repeat("data: x\n", 10_000),
		"<html>a page</html>", `{"choices":[{"message":{"content":"` + strings.Repeat("x", 1<<20),
	}
	b := newBench(t, func(s *setup) {
		s.policies = append(s.policies, hourly())
		s.config.Upstreams[0].Breaker = outbound.Breaker{Failures: -1}
		s.upstream = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			io.Copy(io.Discard, r.Body)
			i, _ := strconv.Atoi(r.Header.Get("X-Answer"))
			w.Header()["Content-Type"] = r.Header["X-Kind"]
			io.WriteString(w, answers[i])
		})
	})
	for i, answer := range answers {
		for _, kind := range []string{"application/json", "text/event-stream", "text/html", ""} {
			for _, stream := range []bool{false, true} {
				before := b.used("upstream", "account")
				got := b.call("openai", stream, "Hello!", "X-Kind: "+kind, "X-Answer: "+strconv.Itoa(i))
				if got.status != http.StatusOK || got.body != answer || got.err != nil {
					t.Errorf("%.40q as %q: got %d %.60q %v", answer, kind, got.status, got.body, got.err)
				}
				b.settled()
				after := b.used("upstream", "account")
				if n := after["tokens"] - before["tokens"]; after["rpm"] != before["rpm"]+1 || n < 1 || n > 10_000_000 {
					t.Errorf("%.40q as %q: %v used, and then %v", answer, kind, before, after)
				}
			}
		}
	}
}

// TestManyStreams: many streams at once are all whole.
//
// req: C12
func TestManyStreams(t *testing.T) {
	t.Parallel()
	const streams = 400
	b := newBench(t, func(s *setup) { s.policies = append(s.policies, hourly()) })
	first := b.call("openai", true, "Hello!\nsimulate: output=100")
	var group sync.WaitGroup
	limit := make(chan struct{}, 40)
	for i := range streams {
		limit <- struct{}{}
		group.Go(func() {
			defer func() { <-limit }()
			got := b.call("openai", true, "Hello!\nsimulate: output=100", gateway.HeaderPriority+": "+fmt.Sprint(i%8))
			if got.err != nil || got.status != http.StatusOK ||
				strings.Count(got.body, "\n\n") != strings.Count(first.body, "\n\n") ||
				!strings.HasSuffix(got.body, "data: [DONE]\n\n") {
				t.Errorf("stream %d: %d %v, %d events", i, got.status, got.err, strings.Count(got.body, "\n\n"))
			}
		})
	}
	group.Wait()
	b.settled()
	if used := b.used("upstream", "account"); used["rpm"] != streams+1 {
		t.Errorf("%v used", used)
	}
}
