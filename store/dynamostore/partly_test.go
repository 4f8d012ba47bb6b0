package dynamostore_test

import (
	"errors"
	"net/http"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/store"
	"github.com/drawgate/drawgate/store/dynamostore"
	"github.com/drawgate/drawgate/store/guard"
)

// breaking is a connection that breaks with the answer to a write, after several others.
type breaking struct {
	next   http.RoundTripper
	left   atomic.Int64 // writes until then
	broken atomic.Bool
}

func (b *breaking) RoundTrip(r *http.Request) (*http.Response, error) {
	if b.broken.Load() {
		return nil, errors.New("connect: connection refused")
	}
	resp, err := b.next.RoundTrip(r)
	if err == nil && isWrite(r) && b.left.Add(-1) == 0 {
		b.broken.Store(true)
		_ = resp.Body.Close()
		return nil, errors.New("read: connection reset by peer")
	}
	return resp, err
}

// TestPartOfATakeIsOpen: the table went away while a reservation in several buckets was made, whose
// taker goes on without it. When it is back the reservation is soon there, in all of them, and what
// is used of it counts once.
//
// req: A10, A12
func TestPartOfATakeIsOpen(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		writes int64 // that were carried out
		early  bool  // it ends before the table is back
	}{
		{"of three buckets one is open", 1, false},
		{"of three buckets two are open", 2, false},
		{"it is open in all", 3, false},
		{"of three buckets one is open, and it ends", 1, true},
		{"of three buckets two are open, and it ends", 2, true},
		{"it is open in all, and it ends", 3, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s, prefix := newSite(t), prefix()
			synctest.Test(t, func(t *testing.T) { partlyOpen(t, s, prefix, c.writes, c.early) })
		})
	}
}

func partlyOpen(t *testing.T, s *site, prefix string, writes int64, early bool) {
	t.Helper()
	p, err := drawgate.Policy{Name: "p", Fallback: drawgate.FallbackOpen, Limits: []drawgate.Limit{
		{Name: "units", Kind: drawgate.Rolling, Amount: 100, Window: 24 * time.Hour, Charge: drawgate.ChargeEnd},
		{Name: "slots", Kind: drawgate.Concurrency, Amount: 10},
	}}.Compile()
	if err != nil {
		t.Fatal(err)
	}
	plan, line := p.Plan, &breaking{next: s.out}
	line.left.Store(writes)
	open := func(transport http.RoundTripper) store.Store {
		d := dynamostore.NewWithClock(tableClient(s.url, transport), "drawgate", &dynamostore.Options{Prefix: prefix},
			func() int64 { return time.Now().UnixMicro() })
		t.Cleanup(func() { _ = d.Close() })
		return d
	}
	g := guard.New(open(line), &guard.Options{Instances: 1, Start: drawgate.StartFull})
	t.Cleanup(func() { _ = g.Close() })
	names := []string{"a", "b", "c"}
	buckets := func(n ...int64) (bs []store.BucketCost) {
		for _, name := range names {
			b := store.BucketCost{Key: store.Key{Policy: "p", Name: name}, Plan: plan}
			copy(b.N[:], n)
			bs = append(bs, b)
		}
		return bs
	}
	tk := store.Take{ID: "id", Grant: store.NewGrant(), Hold: time.Hour, Buckets: buckets(10, 1)}
	if d, err := take(t.Context(), g, tk); err != nil || !d.Allowed || !d.Fallback {
		t.Fatalf("%+v, %v: want it allowed without the table", d, err)
	}
	end := func() {
		out := make([]store.Outcome, 1)
		st := store.Settlement{Op: store.OpSettle, ID: tk.ID, Grant: tk.Grant, Buckets: buckets(4, 1)}
		if err := g.Settle(t.Context(), []store.Settlement{st}, out); err != nil || out[0].Err != nil || out[0].Gone {
			t.Errorf("it does not end: %+v, %v", out[0], err)
		}
	}
	back := func() {
		time.Sleep(10 * time.Minute)
		line.broken.Store(false)
		time.Sleep(20 * time.Second)
		if st := g.State(); st.Unavailable || st.Pending > 0 {
			t.Errorf("20 s after the table is back: %+v", st)
		}
	}
	look := open(s.out)
	want := func(when string, used, held int64) {
		t.Helper()
		out := make([]store.State, len(names))
		if err := look.Peek(t.Context(), buckets(), 0, out); err != nil {
			t.Fatal(err)
		}
		for i, name := range names {
			st := &out[i]
			if st.Fail != nil || len(st.States) != 2 || st.States[0].Used != used || st.States[1].Used != held ||
				int64(st.Open) != held {
				t.Errorf("%s: %s has %+v and %d reservations, want %d units and %d slots", when, name, st.States, st.Open,
					used, held)
			}
		}
	}
	if early {
		end()
		back()
	} else {
		back()
		want("while it goes on", 10, 1)
		end()
	}
	time.Sleep(5 * time.Second)
	want("after its end", 4, 0)
}
