package telemetry_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/store/guard"
	"github.com/drawgate/drawgate/telemetry"
)

// several returns a limiter for each policy, and a func that takes from all of them in one request.
func (r *rig) several(policies ...drawgate.Policy) (first *drawgate.Limiter, asks []drawgate.Ask) {
	r.Helper()
	first = r.limiter(policies[0])
	asks = append(asks, first.Ask("k"))
	for _, p := range policies[1:] {
		l, err := first.With(p)
		if err != nil {
			r.Fatal(err)
		}
		asks = append(asks, l.Ask("k"))
	}
	return first, asks
}

// ended checks the takes of a policy that were allowed, refused by it, and refused by another
// policy.
func (r *rig) ended(policy string, allowed, refused, byOther float64) {
	r.Helper()
	r.want(allowed, "drawgate_decisions_total", "policy", policy, "outcome", "allowed")
	r.want(refused, "drawgate_decisions_total", "policy", policy, "outcome", "refused")
	r.want(byOther, "drawgate_decisions_total", "policy", policy, "outcome", "refused_by_other")
}

// A refusal counts only for the policies that refused, so that nobody who looks for the limit that
// is too low is led to another one.
func TestRefusalCountsForThePolicyThatRefused(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	l, asks := r.several(rolling("global", "rpm", 100, time.Hour), rolling("user", "rpm", 2, time.Hour),
		rolling("model", "rpm", 3, time.Hour))
	take := func(asks ...drawgate.Ask) {
		t.Helper()
		if _, _, err := l.Take(t.Context(), drawgate.Request{Buckets: asks}); err != nil {
			t.Fatal(err)
		}
	}
	take(asks...)          // allowed
	take(asks...)          // allowed
	take(asks...)          // refused by user
	take(asks[0], asks[2]) // allowed
	take(asks...)          // refused by user and model
	take(asks[2], asks[0]) // refused by model, which is first
	r.ended("global", 3, 0, 3)
	r.ended("user", 2, 2, 0)
	r.ended("model", 3, 2, 1)
	r.want(3, "rate_limit_rejections_total", "reason", "distributed_exhausted")
	r.want(3, "drawgate_decision_duration_seconds", "outcome", "refused")
	if n := len(r.family("drawgate_decision_duration_seconds").GetMetric()); n != 4 {
		t.Errorf("got %d outcomes of a take as a whole, want 4", n)
	}
}

// A take that is refused because others wait, because the queue is full, or because its wait ended
// in vain, is refused by the policy of the bucket with the queue.
func TestRefusalInAQueueCountsForTheQueuesPolicy(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, &telemetry.Options{RawIdentifiers: true})
		slow := rolling("slow", "rpm", 1, time.Hour)
		slow.Wait.Queue = 1
		l, asks := r.several(rolling("global", "rpm", 100, time.Hour), slow)
		take := func(ctx context.Context, wait bool) (drawgate.Decision, error) {
			d, _, err := l.Take(ctx, drawgate.Request{Buckets: asks, Wait: wait})
			return d, err
		}
		if d, err := take(t.Context(), false); err != nil || !d.Allowed {
			t.Fatalf("the first take: got %v, %v, want it allowed", d, err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		waited := make(chan error, 1)
		go func() { _, err := take(ctx, true); waited <- err }()
		synctest.Wait()
		if d, err := take(t.Context(), false); err != nil || d.Reason != drawgate.Queued {
			t.Errorf("others wait: got %v, %v, want a refusal", d, err)
		}
		if _, err := take(t.Context(), true); !errors.Is(err, drawgate.ErrQueueFull) {
			t.Errorf("the queue is full: got %v, want ErrQueueFull", err)
		}
		soon, stop := context.WithTimeout(t.Context(), time.Minute)
		defer stop()
		if _, err := take(soon, true); !errors.Is(err, drawgate.ErrDeadline) {
			t.Errorf("the wait cannot end in time: got %v, want ErrDeadline", err)
		}
		r.ended("slow", 1, 3, 0)
		r.ended("global", 1, 0, 3)
		r.want(3, "rate_limit_hits_total", "type", "slow", "identifier", "k")
		r.none("rate_limit_hits_total", "type", "global", "identifier", "k")
		cancel()
		if err := <-waited; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
}

// While the store is unavailable, a refusal counts for the policy whose fallback admits nothing.
func TestRefusalWithoutTheStoreCountsForItsPolicy(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	open, shut := rolling("open", "rpm", 100, time.Hour), rolling("shut", "rpm", 100, time.Hour)
	open.Fallback, shut.Fallback = drawgate.FallbackOpen, drawgate.FallbackClosed
	g := guard.New(r.store, &guard.Options{Instances: 1, Observer: telemetry.JoinGuards(r.m.Guard())})
	t.Cleanup(func() { _ = g.Close() })
	first, err := drawgate.New(g.Full(), open, &drawgate.Options{Observer: r.m.Observer()})
	if err != nil {
		t.Fatal(err)
	}
	second, err := first.With(shut)
	if err != nil {
		t.Fatal(err)
	}
	r.store.down.Store(true)
	d, _, err := first.Take(t.Context(), drawgate.Request{Buckets: []drawgate.Ask{first.Ask("k"), second.Ask("k")}})
	if err != nil || d.Reason != drawgate.Unavailable {
		t.Fatalf("without the store: got %v, %v, want a refusal with the reason Unavailable", d, err)
	}
	r.ended("open", 0, 0, 1)
	r.ended("shut", 0, 1, 0)
	r.want(1, "drawgate_fallback_decisions_total", "policy", "shut", "outcome", "refused")
	r.want(1, "drawgate_fallback_decisions_total", "policy", "open", "outcome", "refused_by_other")
}

// A pause refuses takes although no limit does, and the refusal is counted.
func TestRefusalByAPauseIsCounted(t *testing.T) {
	t.Parallel()
	r := newRig(t, &telemetry.Options{RawIdentifiers: true})
	l := r.limiter(rolling("paused", "rpm", 100, time.Hour))
	if err := l.Pause(t.Context(), "k", time.Hour, "maintenance"); err != nil {
		t.Fatal(err)
	}
	if d, err := l.Allow(t.Context(), "k"); err != nil || d.Reason != drawgate.Paused {
		t.Fatalf("got %v, %v, want a refusal with the reason Paused", d, err)
	}
	r.ended("paused", 0, 1, 0)
	r.want(1, "rate_limit_hits_total", "type", "paused", "identifier", "k")
}
