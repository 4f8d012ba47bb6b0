package redisstore_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/internal/needs"
	"github.com/drawgate/drawgate/internal/redistest"
	"github.com/drawgate/drawgate/store"
	"github.com/drawgate/drawgate/store/guard"
	"github.com/drawgate/drawgate/store/redisstore"
)

// lossy is callers with guards of their own, whose connections lose one reply in twenty.
type lossy struct {
	t       *testing.T
	server  *redistest.Server
	proxies []*redistest.Proxy
	guards  []*guard.Store
	held    *store.Plan // all of them are large, so that nothing is refused
	plain   *store.Plan
	shared  *store.Plan // a guard admits its share
	direct  *redisstore.Store

	used, taken, refunded, admitted atomic.Int64 // units: of settled reservations, and of the others
	calls, failed                   atomic.Int64
}

const lossyCallers = 8

func newLossy(t *testing.T) *lossy {
	t.Helper()
	large := drawgate.Limit{Name: "d", Kind: drawgate.Rolling, Window: 24 * time.Hour, Amount: 1e9}
	plan := func(name string, fallback drawgate.Fallback) *store.Plan {
		p, err := drawgate.Policy{Name: name, Limits: []drawgate.Limit{large}, Fallback: fallback}.Compile()
		if err != nil {
			t.Fatal(err)
		}
		return p.Plan
	}
	l := &lossy{
		t: t, server: redistest.Start(t), held: plan("held", drawgate.FallbackClosed),
		plain: plan("plain", drawgate.FallbackClosed), shared: plan("shared", drawgate.FallbackShare),
	}
	l.direct = open(t, l.server, nil)
	for range lossyCallers {
		p := redistest.NewProxy(t, l.server.Addr)
		s, err := redisstore.Open("redis://"+p.Addr, nil)
		if err != nil {
			t.Fatal(err)
		}
		g := guard.New(s, &guard.Options{Instances: lossyCallers, Timeout: 10 * time.Second, Start: drawgate.StartFull})
		t.Cleanup(func() { _ = g.Close() })
		l.proxies, l.guards = append(l.proxies, p), append(l.guards, g)
	}
	return l
}

// lose makes each proxy lose one reply in so many; 0: none.
func (l *lossy) lose(oneIn int64) {
	for _, p := range l.proxies {
		p.OneIn.Store(oneIn)
	}
}

// all lets each guard be called in a goroutine of its own.
func (l *lossy) all(do func(i int, g *guard.Store)) {
	var wg sync.WaitGroup
	for i, g := range l.guards {
		wg.Go(func() { do(i, g) })
	}
	wg.Wait()
}

func (l *lossy) take(g *guard.Store, ask store.Take) store.Verdict {
	var d [1]store.Verdict
	l.calls.Add(1)
	if err := errors.Join(g.Take(l.t.Context(), []store.Take{ask}, d[:]), d[0].Fail); err != nil {
		l.t.Error("a take:", err)
	}
	return d[0]
}

// settle ends something. Of what a guard does not know, or knows no longer, the caller may be told
// that nobody knows what became of it.
func (l *lossy) settle(g *guard.Store, st store.Settlement, known bool) {
	var o [1]store.Outcome
	l.calls.Add(1)
	err := errors.Join(g.Settle(l.t.Context(), []store.Settlement{st}, o[:]), o[0].Err)
	if err != nil {
		l.failed.Add(1)
	}
	if err != nil && known {
		l.t.Error("a settlement:", err)
	}
}

// reserve takes 10 units, and settles with less or more, or cancels; sometimes it says so twice.
func (l *lossy) reserve(g *guard.Store, id string) {
	ask := held(takeOf(l.held, "k", 10), id, time.Hour)
	ask.Grant = store.NewGrant()
	if !l.take(g, ask).Allowed {
		return
	}
	st := store.Settlement{Op: store.OpCancel, ID: id, Grant: ask.Grant, Buckets: takeOf(l.held, "k", 0).Buckets}
	if n := rand.Int64N(16); n > 0 {
		st.Op, st.Buckets = store.OpSettle, takeOf(l.held, "k", n).Buckets
		l.used.Add(n)
	}
	l.settle(g, st, true)
	if rand.IntN(4) == 0 {
		l.settle(g, st, false)
	}
}

// back waits until a guard asks the store again, so that most calls reach it.
func (l *lossy) back(g *guard.Store) {
	until(l.t, "the store is asked again", func() bool { return !g.State().Unavailable })
}

// refund takes a unit without an id, and gives it back.
func (l *lossy) refund(g *guard.Store) {
	ask := takeOf(l.plain, "k", 1)
	d := l.take(g, ask)
	if !d.Allowed {
		return
	}
	l.taken.Add(1)
	l.refunded.Add(1)
	l.settle(g, store.Settlement{Op: store.OpRefund, Buckets: ask.Buckets, At: d.At()}, false)
}

// stored returns what is used of a bucket when nothing is on its way any more.
func (l *lossy) stored(plan *store.Plan, name string) (used int64) {
	l.t.Helper()
	until(l.t, "everything is delivered", func() bool {
		for _, g := range l.guards {
			if st := g.State(); st.Pending > 0 || st.Unavailable {
				return false
			}
		}
		var st [1]store.State
		err := l.direct.Peek(l.t.Context(), takeOf(plan, name).Buckets, 0, st[:]) // a busy machine may be too slow
		if err != nil || st[0].Fail != nil || st[0].Open > 0 {
			return false
		}
		used = st[0].States[0].Used
		return true
	})
	return used
}

// TestLostRepliesCountOnce: one reply in twenty is lost, of takes, of what ends them, and of what
// the guards deliver later. At the store, each reservation has cost what it was settled with,
// nothing was given back twice, nothing that was admitted is missing, and what was admitted during
// an outage, or charged by a caller then, counts once. DRAWGATE_LONG makes it 100,000 calls.
//
// req: A12, C12, E10
func TestLostRepliesCountOnce(t *testing.T) {
	t.Parallel()
	l := newLossy(t)
	l.lose(20)
	calls := int64(needs.Rounds(100, 600, 100_000))
	l.all(func(c int, g *guard.Store) {
		for i := 0; l.calls.Load() < calls; i++ {
			l.back(g)
			switch i % 3 {
			case 0:
				l.reserve(g, fmt.Sprint(c, " ", i))
			case 1:
				l.refund(g)
			case 2:
				if l.take(g, takeOf(l.shared, "k", 1)).Allowed {
					l.admitted.Add(1)
				}
			}
		}
	})
	l.lose(0)
	if got := l.stored(l.held, "k"); got != l.used.Load() {
		t.Errorf("%d units of reservations are used, want %d", got, l.used.Load())
	}
	if got, least := l.stored(l.plain, "k"), l.taken.Load()-l.refunded.Load(); got < least {
		t.Errorf("%d units are used after %d were given back of %d", got, l.refunded.Load(), l.taken.Load())
	}
	got := l.stored(l.shared, "k")
	if got < l.admitted.Load() {
		t.Errorf("%d units are used, want the %d that were admitted", got, l.admitted.Load())
	}
	t.Logf("%d calls, %d of which failed; %d units of reservations settled; %d taken without one, %d used after %d refunds; "+
		"%d admitted with a share, %d used", l.calls.Load(), l.failed.Load(), l.used.Load(), l.taken.Load(),
		l.stored(l.plain, "k"), l.refunded.Load(), l.admitted.Load(), got)
	l.charges()
}

// charges lets the guards admit units while the server cannot be reached, and counts what arrives
// of them while replies are lost: each of them once.
func (l *lossy) charges() {
	l.t.Helper()
	const each = 10
	admitted, stored := int64(0), int64(0)
	for round := range needs.Rounds(1, 2, 60) {
		for _, p := range l.proxies {
			p.Switch("127.0.0.1:1") // nobody is there: nothing is carried out
		}
		var n atomic.Int64
		l.all(func(i int, g *guard.Store) {
			for range each {
				if l.take(g, takeOf(l.shared, fmt.Sprint(round, " ", i), 1)).Allowed {
					n.Add(1)
				}
			}
			charge := takeOf(l.shared, fmt.Sprint(round, " ", i), 3)
			l.settle(g, store.Settlement{Op: store.OpCharge, At: time.Now(), Buckets: charge.Buckets}, true)
			n.Add(3)
		})
		l.lose(20)
		for _, p := range l.proxies {
			p.Switch(l.server.Addr)
		}
		for i := range l.guards {
			stored += l.stored(l.shared, fmt.Sprint(round, " ", i))
		}
		l.lose(0)
		admitted += n.Load()
	}
	l.t.Logf("%d units were admitted, or charged, while the server could not be reached, and %d are used of them", admitted, stored)
	if stored != admitted {
		l.t.Errorf("%d units are used, want the %d that were admitted", stored, admitted)
	}
}
