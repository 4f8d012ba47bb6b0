package server_test

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/drawgate/drawgate/api"
)

func TestWaitingTakeIsWokenBySettle(t *testing.T) {
	t.Parallel()
	f := plain(t)
	a := f.take(`{"policy":"slots","hold_ms":600000}`)
	done := make(chan api.Answer)
	go func() { done <- f.take(`{"policy":"slots","hold_ms":1000,"wait_ms":60000}`) }()
	f.waitFor(func(h api.Health) bool { return h.Waiting == 1 })
	f.settle(`{"reservation":"` + a.Reservation + `"}`)
	if b := <-done; !b.Allowed {
		t.Errorf("got %+v", b)
	}
}

// req: B7
func TestWaitThatCannotEndInTimeIsRefusedAtOnce(t *testing.T) {
	t.Parallel()
	f := plain(t)
	for range 3 {
		f.take(`{"policy":"tiers"}`)
	}
	sent := time.Now()
	a := f.take(`{"policy":"tiers","wait_ms":600000}`)
	if a.Allowed || a.Reason != api.ReasonLimited || a.RefusedBy == nil || a.RefusedBy.Limit != "minute" {
		t.Errorf("got %+v", a)
	}
	if d := time.Since(sent); d > time.Minute {
		t.Errorf("it took %v", d)
	}
}

// A slot may come free at any time, so such a take waits as long as it may.
func TestWaitEndsWithItsTime(t *testing.T) {
	t.Parallel()
	f := plain(t)
	f.take(`{"policy":"slots","hold_ms":1}`) // gone at once: the next one gets the slot
	f.take(`{"policy":"slots","hold_ms":600000,"wait_ms":60000}`)
	a := f.take(`{"policy":"slots","hold_ms":1000,"wait_ms":50}`)
	if a.Allowed || a.RefusedBy == nil || a.RefusedBy.Limit != "slots" || a.RetryAfterMS < 1 {
		t.Errorf("got %+v", a)
	}
}

func TestClientThatGoesAwayLeavesTheQueue(t *testing.T) {
	t.Parallel()
	f := plain(t)
	f.take(`{"policy":"slots","hold_ms":600000}`)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() {
		req, _ := http.NewRequestWithContext(ctx, http.MethodPost, f.url+"/v1/take",
			strings.NewReader(`{"policy":"slots","hold_ms":1000,"wait_ms":600000}`))
		res, err := http.DefaultClient.Do(req)
		if err == nil {
			_ = res.Body.Close()
		}
		done <- err
	}()
	f.waitFor(func(h api.Health) bool { return h.Waiting == 1 })
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	f.waitFor(func(h api.Health) bool { return h.Waiting == 0 })
}

// The time to send a request must not end the wait of one that was sent.
func TestWaitOutlivesTheReadTimeout(t *testing.T) {
	t.Parallel()
	s := setup{}.make(t)
	const short = 4 * time.Second // and for requests long enough to arrive
	s.SetReadTimeout(short)
	f, stop := serve(t, s)
	held := f.take(`{"policy":"slots","hold_ms":600000}`)
	done := make(chan api.Answer)
	go func() { done <- f.take(`{"policy":"slots","hold_ms":1000,"wait_ms":600000}`) }()
	f.waitFor(func(h api.Health) bool { return h.Waiting == 1 })
	time.Sleep(short + short/4)
	f.settle(`{"reservation":"` + held.Reservation + `"}`)
	if a := <-done; !a.Allowed {
		t.Errorf("got %+v", a)
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
}
