package dynamostore_test

import (
	"bytes"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/internal/awstest"
	"github.com/drawgate/drawgate/store/dynamostore"
	"github.com/drawgate/drawgate/store/guard"
)

// far is a connection over which each request takes a while.
type far struct{ next http.RoundTripper }

func (f far) RoundTrip(r *http.Request) (*http.Response, error) {
	time.Sleep(25 * time.Millisecond)
	return f.next.RoundTrip(r)
}

// withDefaults returns what a program has that sets nothing: a guard and a limiter with their
// defaults.
func withDefaults(t *testing.T, s *dynamostore.Store) *drawgate.Limiter {
	t.Helper()
	g := guard.New(s, nil)
	t.Cleanup(func() { _ = g.Close() })
	lim, err := drawgate.New(g.Full(), drawgate.PerHour("jobs", 10_000), nil)
	if err != nil {
		t.Fatal(err)
	}
	return lim
}

// TestDefaultsLoseNothing: a program that sets no deadline spends no unit for nobody, although a
// take needs more than the 40 ms that other stores have.
//
// req: A1, A2, A11
func TestDefaultsLoseNothing(t *testing.T) {
	t.Parallel()
	for name, server := range map[string]*awstest.Server{"dynalite": awstest.Dynalite(t), "moto": awstest.Moto(t)} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, table := client(t, server)
			lim := withDefaults(t, dynamostore.New(through(server, far{direct}), table,
				&dynamostore.Options{Prefix: prefix()}))
			const callers, takes = 64, 5
			var granted, unanswered atomic.Int64
			var all sync.WaitGroup
			for range callers {
				all.Go(func() {
					for range takes {
						switch d, err := lim.Allow(t.Context(), "k"); {
						case err != nil || !d.Allowed && !d.Fallback:
							t.Errorf("allowed %t, %v", d.Allowed, err)
						case d.Fallback:
							unanswered.Add(1)
						default:
							granted.Add(1)
						}
					}
				})
			}
			all.Wait()
			st, err := lim.Status(t.Context(), "k")
			if err != nil {
				t.Fatal(err)
			}
			if used := st.States[0].Used; used < granted.Load() || used > granted.Load()+unanswered.Load() {
				t.Errorf("%d units are used in the table, and %d were granted to callers", used, granted.Load())
			}
			// How many takes have time enough depends on the machine.
			if n := unanswered.Load(); granted.Load() == 0 || n > 0 && long {
				t.Errorf("%d of %d takes had too little time", n, callers*takes)
			}
		})
	}
}

// TestDefaultsTryFiveTimes: a take that is throttled four times is granted by the table, not by the
// fallback. On a machine so slow that the time of a take is over first, the fallback decides then.
//
// req: A10
func TestDefaultsTryFiveTimes(t *testing.T) {
	t.Parallel()
	server := awstest.Dynalite(t)
	_, table := client(t, server)
	var throttled atomic.Int64
	conn := &faulty{next: direct, fail: func(op string) (int, string) {
		if writes(op) && throttled.Add(1) < 5 {
			return http.StatusBadRequest, exception("ProvisionedThroughputExceededException", "too much")
		}
		return 0, ""
	}}
	s := dynamostore.New(through(server, conn), table, nil)
	lim := withDefaults(t, s)
	start := time.Now()
	d, err := lim.Allow(t.Context(), "k")
	took := time.Since(start)
	switch n := throttled.Load(); {
	case err == nil && d.Allowed && !d.Fallback && n == 5:
	case err == nil && d.Fallback && n <= 5 && took >= s.TakeTime(0)/2 && !long:
	default:
		t.Errorf("allowed %t, fallback %t, %v after %d writes in %v; want a grant by the fifth", d.Allowed, d.Fallback,
			err, n, took)
	}
}

// TestHastyTimeIsWarnedOf: a deadline that is set by hand and too short for a table is used, and is
// in the log once.
func TestHastyTimeIsWarnedOf(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		guard, limiter time.Duration
		want           string // in the log; "": nothing
	}{
		{0, 0, ""},
		{0, -1, ""},
		{2 * time.Second, 3 * time.Second, ""},
		{40 * time.Millisecond, 0, "dynamostore: takes have less time than a table may need"},
		{0, 50 * time.Millisecond, "guard: a limiter is set to less time"},
	} {
		var log bytes.Buffer
		logger := slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelWarn}))
		s := dynamostore.New(through(&awstest.Server{URL: "http://127.0.0.1:1"}, direct), "drawgate",
			&dynamostore.Options{Logger: logger})
		g := guard.New(s, &guard.Options{Timeout: c.guard, Logger: logger})
		for range 2 {
			if _, err := drawgate.New(g.Full(), drawgate.PerHour("jobs", 10),
				&drawgate.Options{StoreTimeout: c.limiter}); err != nil {
				t.Fatal(err)
			}
		}
		if got := log.String(); strings.Count(got, "\n") != min(1, len(c.want)) || !strings.Contains(got, c.want) {
			t.Errorf("guard %v, limiter %v: the log has %q, want %q once", c.guard, c.limiter, got, c.want)
		}
		_ = g.Close()
	}
	s := dynamostore.New(through(&awstest.Server{URL: "http://127.0.0.1:1"}, direct), "drawgate", nil)
	defer s.Close()
	if got := s.TakeTime(0); got != time.Second {
		t.Errorf("a take needs %v", got)
	}
}
