package dynamostore_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/internal/awstest"
	"github.com/drawgate/drawgate/store"
	"github.com/drawgate/drawgate/store/dynamostore"
)

// badConn is a connection on which writes get lost, arrive late, or twice, as a random source says.
type badConn struct {
	rng     *rand.Rand
	rate    float64
	log     func(string, ...any)
	delayed []func() (*http.Response, error) // that have not arrived yet
}

func (c *badConn) carry(op string, send func() (*http.Response, error)) (*http.Response, error) {
	if !writes(op) || c.rng.Float64() > c.rate {
		return send()
	}
	k := c.rng.IntN(4)
	c.log("%s: %s", op, []string{
		"its answer is lost", "it arrives later", "it arrives, and again later",
		"it arrives twice",
	}[k])
	switch k {
	case 0: // the answer is lost
		return loses(send)
	case 1: // it arrives later
		c.delayed = append(c.delayed, send)
		return nil, errLost
	case 2: // it arrives now, and again later
		c.delayed = append(c.delayed, send)
		return send()
	}
	_, _ = loses(send) // it arrives twice
	return send()
}

// arrive lets one write arrive.
func (c *badConn) arrive() {
	if n := len(c.delayed); n > 0 {
		i := c.rng.IntN(n)
		if resp, err := c.delayed[i](); err == nil {
			c.log("a write that arrives late is answered %d", resp.StatusCode)
			_, _ = io.Copy(io.Discard, resp.Body)
			_ = resp.Body.Close()
		}
		c.delayed = append(c.delayed[:i], c.delayed[i+1:]...) //nolint:bodyclose // the caller of a delayed write closes it
	}
}

// hold is a reservation in a history.
type hold struct {
	id      string
	grant   store.Grant
	at, end int64
	n       int64
	known   bool // its taker was told that it has it
	ended   bool // it was settled, or may have been
	settled bool // it was
}

// history is what callers of several stores were told.
type history struct {
	*testing.T
	rng    *rand.Rand
	now    *atomic.Int64
	plan   *store.Plan
	stores []*dynamostore.Store
	conns  []*badConn

	paused int64 // until then
	holds  []*hold
	plain  []grant
	maybe  int64 // units of which nobody knows
	takes  int
}

const (
	historyAmount, historyWindow, historySlots = 20, 10 * time.Second, 3
)

// TestHistories carries out random calls through three stores, some of which write items with
// entries, on connections on which anything goes wrong: no limit is exceeded by what callers were
// granted, no reservation is settled twice, and what was paused stays paused.
//
// req: A3, A8, A12
func TestHistories(t *testing.T) {
	t.Parallel()
	server := awstest.Dynalite(t)
	_, name := client(t, server)
	n := 12
	if long {
		n = 600
	}
	for i := range n {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			t.Parallel()
			seed := rand.Uint64()
			defer func() {
				if t.Failed() {
					t.Logf("seed %d", seed)
				}
			}()
			newHistory(t, server, name, seed).run(150)
		})
	}
}

func newHistory(t *testing.T, server *awstest.Server, table string, seed uint64) *history {
	t.Helper()
	plan, err := drawgate.Policy{Name: "p", Limits: []drawgate.Limit{
		{Name: "rolling", Kind: drawgate.Rolling, Amount: historyAmount, Window: historyWindow},
		{Name: "slots", Unit: "slots", Kind: drawgate.Concurrency, Amount: historySlots},
		{Name: "all", Unit: "all", Kind: drawgate.Rolling, Amount: 1_000_000, Window: 365 * 24 * time.Hour},
	}}.Compile()
	if err != nil {
		t.Fatal(err)
	}
	h := &history{T: t, rng: rand.New(rand.NewPCG(seed, 1)), now: &atomic.Int64{}, plan: plan.Plan}
	h.now.Store(time.Date(2026, 3, 28, 22, 58, 3, 0, time.UTC).UnixMicro())
	opts := &dynamostore.Options{Prefix: prefix()}
	for i := range 3 {
		c := &badConn{log: t.Logf, rng: h.rng, rate: 0.15 * float64(h.rng.IntN(3))}
		s := dynamostore.NewWithClock(through(server, network(c.carry)), table, opts, h.now.Load)
		if i == 0 || h.rng.IntN(3) > 0 {
			s.Contest()
		}
		t.Cleanup(func() { _ = s.Close() })
		h.stores, h.conns = append(h.stores, s), append(h.conns, c)
	}
	return h
}

func (h *history) run(steps int) {
	for range steps {
		s := h.stores[h.rng.IntN(len(h.stores))]
		switch h.rng.IntN(12) {
		case 0, 1, 2:
			h.take(s)
		case 3, 4, 5:
			h.reserve(s)
		case 6, 7:
			h.settle(s)
		case 8:
			h.renew(s)
		case 9:
			if h.rng.IntN(4) == 0 {
				h.pause(s)
			}
		case 10:
			h.conns[h.rng.IntN(len(h.conns))].arrive()
		case 11:
			h.now.Add([]int64{1, 50_000, 700_000, 3_000_000, 11_000_000, 40_000_000}[h.rng.IntN(6)])
		}
		h.check()
		if h.Failed() {
			return
		}
	}
}

func (h *history) costs(n, slots int64) []store.BucketCost {
	return []store.BucketCost{{Key: store.Key{Policy: "p", Name: "k"}, Plan: h.plan, N: store.Amounts{n, slots, n}}}
}

func (h *history) take(s *dynamostore.Store) {
	n := 1 + h.rng.Int64N(6)
	d, err := take(h.Context(), s, store.Take{Buckets: h.costs(n, 0)})
	h.granted(&d, err, n)
	h.Logf("%d %p: take %d: %t, %v", h.now.Load(), s, n, d.Allowed, err)
	if err == nil && d.Allowed {
		h.plain = append(h.plain, grant{h.now.Load(), n})
	}
}

// granted checks an answer to a take.
func (h *history) granted(d *store.Verdict, err error, n int64) {
	switch {
	case errors.Is(err, store.ErrNothingDone):
	case err != nil:
		h.maybe += n
	case d.Allowed && h.now.Load() < h.paused:
		h.Error("allowed while the bucket is paused")
	}
}

func (h *history) reserve(s *dynamostore.Store) {
	h.takes++
	r := &hold{id: fmt.Sprint("id ", h.rng.IntN(8)), grant: store.NewGrant(), n: 1 + h.rng.Int64N(6), at: h.now.Load()}
	length := time.Duration(1+h.rng.Int64N(20)) * time.Second
	r.end = r.at + length.Microseconds()
	defer func() {
		h.Logf("%d %p: reserve %s %x, %d units for %v: %v", h.now.Load(), s, r.id, uint64(r.grant), r.n, length,
			r.known)
	}()
	d, err := take(h.Context(), s, store.Take{ID: r.id, Grant: r.grant, Hold: length, Buckets: h.costs(r.n, 1)})
	if errors.Is(err, store.ErrIDOpen) || errors.Is(err, store.ErrIDReused) || d.Replayed {
		return
	}
	h.granted(&d, err, r.n)
	r.known = err == nil && d.Allowed
	if r.known || err != nil && !errors.Is(err, store.ErrNothingDone) {
		h.holds = append(h.holds, r)
	}
}

func (h *history) settle(s *dynamostore.Store) {
	if len(h.holds) == 0 {
		return
	}
	r := h.holds[h.rng.IntN(len(h.holds))]
	set := store.Settlement{Op: store.OpSettle, ID: r.id, Grant: r.grant, Buckets: h.costs(h.rng.Int64N(r.n+1), 0)}
	n := set.Buckets[0].N[0]
	if h.rng.IntN(3) == 0 {
		set.Op, n = store.OpCancel, 0
	}
	o, err := settle(h.Context(), s, set)
	h.Logf("%d %p: %v %s %x with %d: gone %t, %v", h.now.Load(), s, set.Op, r.id, uint64(r.grant), n, o.Gone, err)
	switch {
	case errors.Is(err, store.ErrNothingDone):
	case err != nil: // whether it is settled or not, it may not be counted on
		h.maybe += r.n
		r.ended = true
	case o.Gone:
		r.ended = true
	case r.settled:
		h.Errorf("%s was settled twice", r.id)
	default:
		r.ended, r.settled, r.n = true, true, n
	}
}

func (h *history) renew(s *dynamostore.Store) {
	if len(h.holds) == 0 {
		return
	}
	r := h.holds[h.rng.IntN(len(h.holds))]
	length := time.Duration(1+h.rng.Int64N(30)) * time.Second
	o, err := settle(h.Context(), s, store.Settlement{
		Op: store.OpRenew, ID: r.id, Grant: r.grant, Hold: length,
		Buckets: h.costs(0, 0),
	})
	h.Logf("%d %p: renew %s %x for %v: gone %t, %v", h.now.Load(), s, r.id, uint64(r.grant), length, o.Gone, err)
	if err == nil && !o.Gone {
		if r.settled {
			h.Errorf("%s was renewed after its settlement", r.id)
		}
		r.end = o.End.UnixMicro()
	}
}

func (h *history) pause(s *dynamostore.Store) {
	length := time.Duration(1+h.rng.Int64N(5)) * time.Second
	if _, err := settle(h.Context(), s, store.Settlement{
		Op: store.OpPause, Hold: length,
		Buckets: h.costs(0, 0),
	}); err == nil {
		h.paused = max(h.paused, h.now.Load()+length.Microseconds())
	}
}

// check adds up what callers have, now.
func (h *history) check() {
	h.Helper()
	now := h.now.Load()
	sum, all, slots := int64(0), int64(0), 0
	for _, g := range h.plain {
		if all += g.n; g.at > now-historyWindow.Microseconds() {
			sum += g.n
		}
	}
	for _, r := range h.holds {
		if !r.known {
			continue
		}
		if all += r.n; r.at > now-historyWindow.Microseconds() {
			sum += r.n
		}
		if !r.ended && r.end > now {
			slots++
		}
	}
	if sum > historyAmount || slots > historySlots {
		h.Errorf("%d units within the window and %d slots are granted, at most %d and %d are allowed", sum, slots,
			historyAmount, historySlots)
	}
	if h.rng.IntN(10) > 0 {
		return
	}
	s := h.stores[h.rng.IntN(len(h.stores))]
	st := make([]store.State, 1)
	if err := s.Peek(h.Context(), h.costs(0, 0), 0, st); err != nil || st[0].Fail != nil {
		h.Fatal(err, st[0].Fail)
	}
	if used := st[0].States[2].Used; used < all || used > all+h.maybe {
		h.Errorf("%d units were granted, and of %d it is unknown; %d are in the item: each must count exactly once",
			all, h.maybe, used)
	}
}

// FuzzEntry reads entries that anybody may have written.
func FuzzEntry(f *testing.F) {
	f.Add([]byte{})
	f.Add([]byte(strings.Repeat("\x02", 40)))
	for _, b := range dynamostore.Entries() {
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		again, err := dynamostore.Reread(b)
		if err != nil {
			return
		}
		if third, err := dynamostore.Reread(again); err != nil || string(third) != string(again) {
			t.Errorf("%x is read as %x, and that as %x, %v", b, again, third, err)
		}
	})
}

// contestedStores returns two stores on the same buckets, which write entries.
func contestedStores(t *testing.T, r http.RoundTripper) (a, b *dynamostore.Store) {
	t.Helper()
	server, opts := empty(t), &dynamostore.Options{Prefix: prefix()}
	now := time.Date(2026, 3, 28, 22, 58, 3, 0, time.UTC).UnixMicro()
	open := func() *dynamostore.Store {
		s := dynamostore.NewWithClock(through(server, r), "drawgate", opts, func() int64 { return now })
		s.Contest()
		t.Cleanup(func() { _ = s.Close() })
		return s
	}
	return open(), open()
}

// A refusal by an image that is old is not given because another take of the same batch, by the
// same image, is granted.
//
// req: A3
func TestRefusalBesideAGrant(t *testing.T) {
	t.Parallel()
	a, b := contestedStores(t, direct)
	plan := planOf(t, 10)
	held := store.Take{ID: "id", Grant: 7, Hold: time.Hour, Buckets: bucketsOf(plan, 8, "k")}
	if d, err := take(t.Context(), a, held); err != nil || !d.Allowed {
		t.Fatal(d, err)
	}
	if d, err := takeOf(t.Context(), b, plan, "k", 1); err != nil || !d.Allowed {
		t.Fatal(d, err)
	}
	if o, err := settle(t.Context(), a, store.Settlement{
		Op: store.OpCancel, ID: "id", Grant: 7,
		Buckets: bucketsOf(plan, 0, "k"),
	}); err != nil || o.Gone {
		t.Fatal(o, err)
	}
	out := make([]store.Verdict, 2)
	if err := b.Take(t.Context(), []store.Take{{Buckets: bucketsOf(plan, 1, "k")}, {Buckets: bucketsOf(plan, 5, "k")}},
		out); err != nil || !out[0].Allowed || !out[1].Allowed {
		t.Errorf("1 and 5 of 9: allowed %t and %t, %v", out[0].Allowed, out[1].Allowed, err)
	}
}

// Two versions of a policy in one batch, of which the one with fewer limits grants nothing, leave
// an item that both can use.
//
// req: A3
func TestTwoVersionsInABatch(t *testing.T) {
	t.Parallel()
	a, b := contestedStores(t, direct)
	first := planOf(t, 10)
	second, err := store.Policy{Name: first.Name(), Limits: append(slices.Clone(first.Policy().Limits),
		store.Limit{Name: "more", Kind: drawgate.Rolling, Amount: 9, Window: time.Hour})}.Compile()
	if err != nil {
		t.Fatal(err)
	}
	out := make([]store.Verdict, 2)
	two := bucketsOf(second, 1, "k")
	two[0].N[1] = 1
	if err := a.Take(t.Context(), []store.Take{{Buckets: bucketsOf(first, 11, "k")}, {Buckets: two}},
		out); err != nil || out[0].Allowed || !out[1].Allowed {
		t.Fatal(err, out[0].Allowed, out[1].Allowed)
	}
	for i, s := range []*dynamostore.Store{a, b, a, b} {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		if d, err := take(ctx, s, store.Take{Buckets: two}); err != nil || !d.Allowed {
			t.Errorf("take %d: %t, %v", i, d.Allowed, err)
		}
		cancel()
	}
	if u := used(t, b, first, "k"); u != 5 {
		t.Errorf("%d used, want 5", u)
	}
}

// bounded refuses what DynamoDB would: expressions of more than 4,096 bytes, or with more than 300
// operators.
type bounded struct{ next http.RoundTripper }

func (b bounded) RoundTrip(r *http.Request) (*http.Response, error) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	var in struct{ UpdateExpression, ConditionExpression string }
	if err := json.Unmarshal(body, &in); err != nil {
		return nil, err
	}
	operators := strings.Count(in.ConditionExpression, "=") + strings.Count(in.ConditionExpression, "<") +
		strings.Count(in.ConditionExpression, "not_exists") + strings.Count(in.ConditionExpression, "AND")
	if max(len(in.UpdateExpression), len(in.ConditionExpression)) > 4096 || operators > 300 {
		return answer(r, http.StatusBadRequest, exception("ValidationException",
			"Expression size has exceeded the maximum allowed size")), nil
	}
	r = r.Clone(r.Context())
	r.Body = io.NopCloser(strings.NewReader(string(body)))
	return b.next.RoundTrip(r)
}

// Many reservations of one bucket at once, and their settlements, stay within what DynamoDB allows.
//
// req: A3
func TestManyReservationsAtOnce(t *testing.T) {
	t.Parallel()
	a, b := contestedStores(t, bounded{direct})
	plan := planOf(t, 1_000_000)
	const many = 300
	takes, ends := make([]store.Take, many), make([]store.Settlement, many)
	for i := range takes {
		takes[i] = store.Take{
			ID: fmt.Sprint(i), Grant: store.Grant(i + 1), Hold: time.Hour,
			Buckets: bucketsOf(plan, 2, "k"),
		}
		ends[i] = store.Settlement{
			ID: takes[i].ID, Grant: takes[i].Grant, Op: store.OpSettle,
			Buckets: bucketsOf(plan, 1, "k"),
		}
	}
	for round, n := range []int{1, 50, 150, many} {
		for i := range takes {
			takes[i].ID, ends[i].ID = fmt.Sprint(round, " ", i), fmt.Sprint(round, " ", i)
		}
		got := make([]store.Verdict, n)
		if err := a.Take(t.Context(), takes[:n], got); err != nil {
			t.Fatal(err)
		}
		for i := range got {
			if !got[i].Allowed || got[i].Fail != nil {
				t.Fatalf("reservation %d of %d: %v", i, n, got[i].Fail)
			}
		}
		out := make([]store.Outcome, n)
		if err := b.Settle(t.Context(), ends[:n], out); err != nil {
			t.Fatal(err)
		}
		for i := range out {
			if out[i].Gone || out[i].Err != nil {
				t.Fatalf("settlement %d of %d: gone %t, %v", i, n, out[i].Gone, out[i].Err)
			}
		}
	}
	if u := used(t, a, plan, "k"); u != 1+50+150+many {
		t.Errorf("%d used, want %d", u, 1+50+150+many)
	}
}
