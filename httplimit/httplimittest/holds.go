package httplimittest

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"time"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/httplimit"
)

// everybody is the key of held.
const everybody = "all"

// held are buckets of one key, so that a test can look at them.
func held(l *drawgate.Limiter) []httplimit.Bucket {
	return []httplimit.Bucket{{Limiter: l, Key: httplimit.Fixed(everybody)}}
}

func testSlots(e *env) {
	t, h := e.t, e.h
	block := newGate()
	l := newLimiter(t, nil, "slots", slots(2))
	s := open(t, h, nil, held(l), Route{Pattern: "/block", Serve: block.serve})
	var under []<-chan result
	for range 2 {
		under = append(under, s.begin(t.Context(), "/block"))
	}
	block.waitFor(t, 2)
	r := s.expect(http.StatusTooManyRequests, "/")
	r.wantHeaders(t, map[string]string{
		"X-RateLimit-Limit": "2", "X-RateLimit-Remaining": "0", "X-RateLimit-Reset": "", "Retry-After": "1",
		"RateLimit": `"slots";r=0`, "RateLimit-Policy": `"slots";q=2;qu="concurrent-requests"`,
	})
	block.open()
	for _, c := range under {
		if r := <-c; r.err != nil || r.status != http.StatusOK {
			t.Errorf("%v, %v", r.status, r.err)
		}
	}
	for range 5 { // one after the other they always fit
		s.expect(http.StatusOK, "/").wantHeaders(t, map[string]string{"X-RateLimit-Remaining": "1"})
	}
	eventually(t, "all slots are free", func() bool { return underWay(t, l) == 0 })
}

func testPanic(e *env) {
	t, h := e.t, e.h
	l := newLimiter(t, nil, "slots", slots(1))
	s := open(t, h, nil, held(l))
	for range 3 {
		_, _ = s.try(t.Context(), http.MethodGet, "/panic") // what the client sees is the framework's affair
		eventually(t, "the slot is free", func() bool { return underWay(t, l) == 0 })
	}
	s.expect(http.StatusOK, "/")
}

func testClientGone(e *env) {
	t, h := e.t, e.h
	block := newGate()
	l := newLimiter(t, nil, "slots", slots(1))
	s := open(t, h, nil, held(l), Route{Pattern: "/block", Serve: block.serve})
	ctx, cancel := context.WithCancel(t.Context())
	first := s.begin(ctx, "/block")
	block.waitFor(t, 1)
	cancel()
	<-first
	if h.Deaf {
		block.open() // nobody tells the handler: it ends by itself
	}
	eventually(t, "the slot is free", func() bool { return underWay(t, l) == 0 })
	s.expect(http.StatusOK, "/")
}

// testLong streams for several times as long as units are held.
func testLong(e *env) {
	for _, hold := range []time.Duration{500 * time.Millisecond, 2 * time.Second, 8 * time.Second} {
		if long(e, hold) {
			return
		}
		e.t.Logf("this machine was too busy to renew a hold of %v in time", hold)
	}
	e.t.Error("no hold was renewed")
}

// long reports whether the hold was kept until the end. It fails the test if another got the slot
// of a handler that was not told to stop.
func long(e *env, hold time.Duration) (kept bool) {
	t, h := e.t, e.h
	l := newLimiter(t, nil, "slots", slots(1))
	begun, enough, lost := make(chan struct{}), make(chan struct{}), make(chan struct{}, 1)
	stop := sync.OnceFunc(func() { close(enough) })
	defer stop()
	parts := 0
	stream := func(c *Call) {
		close(begun)
		for {
			c.Write("part ")
			c.Flush()
			parts++
			select {
			case <-time.After(hold / 5):
			case <-enough:
				return
			case <-c.Context.Done():
				lost <- struct{}{}
				return
			}
		}
	}
	s := open(t, h, &httplimit.Options{Hold: hold}, held(l), Route{Pattern: "/stream", Serve: stream, Streams: true})
	first := s.begin(t.Context(), "/stream")
	<-begun
	for end := time.Now().Add(9 * hold / 5); time.Now().Before(end); time.Sleep(hold / 10) {
		if r := s.get("/"); r.status == http.StatusTooManyRequests {
			continue
		}
		select {
		case <-lost:
			<-first
			return false
		case <-time.After(patience):
			t.Fatal("another got the slot of a handler that was not told to stop")
		}
	}
	stop()
	r := <-first
	if len(lost) > 0 {
		return false
	}
	if r.err != nil || r.status != http.StatusOK || len(r.body) != parts*len("part ") {
		t.Fatalf("%v, %q, %v", r.status, r.body, r.err)
	}
	eventually(t, "the slot is free", func() bool { return underWay(t, l) == 0 })
	return true
}

func testLost(e *env) {
	t, h := e.t, e.h
	block := newGate()
	l := newLimiter(t, nil, "slots", slots(1))
	s := open(t, h, &httplimit.Options{Hold: 200 * time.Millisecond}, held(l),
		Route{Pattern: "/block", Serve: block.serve})
	first := s.begin(t.Context(), "/block")
	block.waitFor(t, 1)
	if err := l.Reset(t.Context(), everybody); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-block.causes:
		if !errors.Is(err, httplimit.ErrHoldLost) {
			t.Errorf("the handler's context ended with %v, want ErrHoldLost", err)
		}
	case <-time.After(patience):
		t.Errorf("the handler was not told to stop within %v", patience)
		block.open()
	}
	<-first
}
