package telemetry_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/api"
	"github.com/drawgate/drawgate/store/memstore"
	"github.com/drawgate/drawgate/telemetry"
)

// refusing returns a limiter whose refusals are kept.
func refusing(t *testing.T, p drawgate.Policy) (*drawgate.Limiter, *telemetry.Refusals) {
	t.Helper()
	r := telemetry.NewRefusals()
	l, err := drawgate.New(memstore.New(nil), p, &drawgate.Options{Observer: r.Observer()})
	if err != nil {
		t.Fatal(err)
	}
	return l, r
}

// Refusals are listed by bucket and limit, the latest first, with what the last one asked for and
// what was left.
//
// req: B10
func TestRefusals(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l, r := refusing(t, drawgate.Policy{Name: "llm", Limits: []drawgate.Limit{
			{Name: "rpm", Kind: drawgate.Rolling, Window: time.Hour, Amount: 2},
			{Name: "tpm", Unit: "tokens", Kind: drawgate.Rolling, Window: time.Minute, Amount: 100},
		}})
		take := func(l *drawgate.Limiter, key string, tokens int64) {
			t.Helper()
			if _, err := l.Allow(t.Context(), key, drawgate.Requests(1),
				drawgate.Cost{Unit: "tokens", N: tokens}); err != nil {
				t.Fatal(err)
			}
		}
		begin := time.Now().UTC()
		take(l, "a", 70)
		take(l, "a", 40) // refused by tpm
		time.Sleep(time.Second)
		take(l, "a", 30)
		take(l, "a", 1) // by both: rpm refuses longer
		take(l, "b", 1)
		time.Sleep(time.Second)
		take(l, "a", 5)
		if err := l.Pause(t.Context(), "b", time.Minute, ""); err != nil {
			t.Fatal(err)
		}
		take(l, "b", 1)
		want := []api.Refusal{
			{
				Policy: "llm", Key: "b", Reason: "paused", Count: 1, First: begin.Add(2 * time.Second),
				Last: begin.Add(2 * time.Second),
			},
			{
				Policy: "llm", Key: "a", Reason: "limited", Limit: "rpm", Unit: "requests", Count: 2,
				First: begin.Add(time.Second), Last: begin.Add(2 * time.Second), Asked: 1, Max: 2,
			},
			{
				Policy: "llm", Key: "a", Reason: "limited", Limit: "tpm", Unit: "tokens", Count: 1, First: begin,
				Last: begin, Asked: 40, Remaining: 30, Max: 100,
			},
		}
		got, dropped := r.List()
		if diff := cmp.Diff(want, got); diff != "" || dropped {
			t.Errorf("dropped %v, (-want +got)\n%s", dropped, diff)
		}
	})
}

// Of more buckets than there is room for, those stay that were refused last. Many callers may be
// refused at the same time.
func TestRefusalsAreBounded(t *testing.T) {
	t.Parallel()
	l, r := refusing(t, rolling("p", "none", 1, time.Hour))
	var wg sync.WaitGroup
	for part := range 4 {
		wg.Go(func() {
			for i := range 1000 {
				for range 2 {
					_, _ = l.Allow(t.Context(), fmt.Sprintf("%d-%d-%s", part, i, strings.Repeat("k", 1000)))
				}
			}
		})
	}
	wg.Wait()
	for i := range api.MaxRefusals - 1 {
		for range 2 {
			_, _ = l.Allow(t.Context(), fmt.Sprint("late-", i))
		}
	}
	got, dropped := r.List()
	if len(got) != api.MaxRefusals || !dropped || got[0].Key != fmt.Sprint("late-", api.MaxRefusals-2) {
		t.Fatalf("%d, dropped %v, the latest is %q", len(got), dropped, got[0].Key)
	}
	for i, f := range got {
		if late := strings.HasPrefix(f.Key, "late-"); late != (i < api.MaxRefusals-1) || f.Count != 1 ||
			len(f.Key) > 256 {
			t.Errorf("%d: %q, %d refusals", i, f.Key, f.Count)
		}
	}
}
