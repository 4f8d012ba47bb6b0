package server_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/api"
	"github.com/drawgate/drawgate/client"
	"github.com/drawgate/drawgate/engine"
	"github.com/drawgate/drawgate/internal/pipetest"
	"github.com/drawgate/drawgate/internal/present"
	"github.com/drawgate/drawgate/store"
	"github.com/drawgate/drawgate/store/memstore"
)

// lossy is a store in a network that takes its time, and loses one reply in five.
type lossy struct {
	drawgate.Store
	mu     sync.Mutex
	random *rand.Rand // guarded by mu
	lost   int        // guarded by mu
}

// delay is the longest way to the store, or back.
const delay = 10 * time.Millisecond

// over carries a call over the network. The store does what it is asked even if nobody waits for it
// any more.
func (s *lossy) over(ctx context.Context, op string, f func(context.Context) error) error {
	s.mu.Lock()
	there, back, lose := time.Duration(s.random.Int64N(int64(delay))), time.Duration(s.random.Int64N(int64(delay))),
		s.random.IntN(5) == 0
	if lose {
		s.lost++
	}
	s.mu.Unlock()
	answered := make(chan error, 1)
	go func() {
		time.Sleep(there)
		err := f(context.WithoutCancel(ctx))
		time.Sleep(back)
		if !lose {
			answered <- err
		}
	}()
	select {
	case err := <-answered:
		return err
	case <-ctx.Done():
		return &drawgate.StoreError{Store: "lossy", Op: op, Err: ctx.Err()}
	}
}

func (s *lossy) Take(ctx context.Context, takes []store.Take, out []store.Verdict) error {
	got := make([]store.Verdict, len(out))
	err := s.over(ctx, "take", func(ctx context.Context) error { return s.Store.Take(ctx, takes, got) })
	if err == nil {
		copy(out, got)
	}
	return err
}

func (s *lossy) Settle(ctx context.Context, list []store.Settlement, out []store.Outcome) error {
	got := make([]store.Outcome, len(out))
	err := s.over(ctx, "settle", func(ctx context.Context) error { return s.Store.Settle(ctx, list, got) })
	if err == nil {
		copy(out, got)
	}
	return err
}

// tally counts what callers know.
type tally struct {
	units, maybe, open, gaveUp atomic.Int64
}

// Takes over HTTP that are given up at random points, by a caller that hangs up and by the Go
// client, while one reply of the store in five is lost. When the longest attempt and SendLife are
// over, nothing is open that nobody owns. What is used lies between what was granted, and that and
// what errors said may be.
//
// req: A2
func TestGivenUpTakesLeaveNothingOpen(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const takes, callers = 1000, 50
		st := &lossy{Store: memstore.New(nil), random: rand.New(rand.NewPCG(3, 4))}
		config := engine.Config{Policies: enforced(
			drawgate.Policy{Name: "units", Limits: []drawgate.Limit{{
				Name: "day", Kind: drawgate.Rolling,
				Window: 24 * time.Hour, Amount: 1_000_000,
			}}},
			drawgate.Policy{Name: "slots", Limits: []drawgate.Limit{{
				Name: "slots", Kind: drawgate.Concurrency,
				Amount: 100,
			}}},
		)}
		s := setup{store: st, config: config, engine: &engine.Options{StoreTimeout: 100 * time.Millisecond}}.make(t)
		ln := pipetest.Listen()
		ctx, stop := context.WithCancel(t.Context())
		served := make(chan error, 1)
		go func() { served <- s.ServeAdmin(ctx, ln) }()
		raw := &http.Client{Transport: &http.Transport{DialContext: ln.DialContext}}
		c, err := client.New("http://bubble", &client.Options{HTTPClient: raw, Attempts: 20})
		if err != nil {
			t.Fatal(err)
		}
		var sum tally
		var wg sync.WaitGroup
		for w := range callers {
			wg.Go(func() {
				random := rand.New(rand.NewPCG(uint64(w), 5))
				for i := range takes / callers {
					sum.giveUp(t, c, raw, random, fmt.Sprintf("%d-%d", w, i))
				}
			})
		}
		wg.Wait()
		c.Close()
		time.Sleep(3*2*time.Second + store.SendLife) // a take that waits has up to three attempts of two seconds
		open := int64(0)
		for _, policy := range []string{"units", "slots"} {
			st, err := c.Status(t.Context(), api.StatusRequest{Bucket: api.Bucket{Policy: policy}})
			if err != nil {
				t.Fatal(err)
			}
			open += int64(st.Open)
			if used := st.Limits[0].Used; policy == "units" &&
				(used < sum.units.Load() || used > sum.units.Load()+sum.maybe.Load()) {
				t.Errorf("%d are used, and %d were granted, and %d may be spent", used, sum.units.Load(),
					sum.maybe.Load())
			}
		}
		if open != sum.open.Load() {
			t.Errorf("%d reservations are open, and callers have %d", open, sum.open.Load())
		}
		t.Logf("%d given up, %d replies lost, %d units granted, %d more may be spent, %d open", sum.gaveUp.Load(),
			st.lost, sum.units.Load(), sum.maybe.Load(), open)
		if sum.gaveUp.Load() < takes/4 || st.lost < takes/10 || sum.open.Load() == 0 {
			t.Error("this shows nothing")
		}
		c.Close()
		raw.CloseIdleConnections()
		stop()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
}

// giveUp takes in one of the ways there are, for a random time.
func (s *tally) giveUp(t *testing.T, c *client.Client, raw *http.Client, random *rand.Rand, id string) {
	t.Helper()
	patience := time.Duration(random.Int64N(int64(4 * delay)))
	if random.IntN(3) == 0 { // some have the time to be answered
		patience = time.Minute
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	take := api.Take{Bucket: api.Bucket{Policy: "units"}, HoldMS: 3_600_000}
	if random.IntN(2) == 0 {
		take.Policy = "slots"
	}
	if random.IntN(3) == 0 {
		take.WaitMS = 500
	}
	var res *client.Reservation
	switch random.IntN(4) {
	case 0:
		take.Policy, take.HoldMS = "units", 0
		s.plain(c.Take(ctx, take))
		return
	case 1: // the Go client, which chooses a grant
		res, _, _ = c.Reserve(ctx, take)
	case 2: // any program, which names an id
		take.ID = id
		res = reserveRaw(t, ctx, c, raw, take)
	default:
		res = reserveRaw(t, ctx, c, raw, take)
	}
	switch {
	case res == nil:
		s.gaveUp.Add(1)
	case random.IntN(20) > 0:
		// its answer may have been lost too often
		if err := res.Cancel(t.Context()); err != nil && !errors.Is(err, client.ErrGone) {
			t.Errorf("cancel: %v", err)
		}
	default: // it stays open
		s.open.Add(1)
		if take.Policy == "units" {
			s.units.Add(1)
		}
	}
}

// plain counts a take without a hold.
func (s *tally) plain(a api.Answer, err error) {
	switch {
	case err != nil:
		s.maybe.Add(1)
		s.gaveUp.Add(1)
	case a.Allowed:
		s.units.Add(1)
	}
}

// reserveRaw asks once, as any program may; nil if there was no answer, or a refusal.
func reserveRaw(t *testing.T, ctx context.Context, c *client.Client, raw *http.Client, take api.Take) *client.Reservation { //nolint:revive // t comes first
	t.Helper()
	body, err := json.Marshal(take)
	if err != nil {
		t.Fatal(err)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://bubble/v1/take", bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	res, err := raw.Do(req)
	if err != nil {
		return nil
	}
	defer func() { _ = res.Body.Close() }()
	var a api.Answer
	if err := json.NewDecoder(res.Body).Decode(&a); err != nil || a.Reservation == "" {
		return nil
	}
	return c.Resume(a.Reservation)
}

// slowly is a store whose answers take a second.
type slowly struct{ drawgate.Store }

func (s slowly) Take(ctx context.Context, takes []store.Take, out []store.Verdict) error {
	err := s.Store.Take(ctx, takes, out)
	select {
	case <-time.After(time.Second):
		return err
	case <-ctx.Done():
		return &drawgate.StoreError{Store: "slowly", Op: "take", Err: ctx.Err()}
	}
}

// Who chose the grant and lost the connection sends the take again, and then has what it holds:
// nothing that became of the first connection takes it away.
func TestTakeThatIsSentAgainKeepsItsHold(t *testing.T) {
	t.Parallel()
	for _, rest := range []string{``, `,"wait_ms":600000`} {
		synctest.Test(t, func(t *testing.T) {
			f := setup{store: slowly{memstore.New(nil)}}.inBubble(t)
			body := `{"policy":"slots","hold_ms":600000,"id":"job","grant":"00000000000000a1"` + rest + `}`
			// the store has decided, and its answer is on its way
			ctx, cancel := context.WithTimeout(t.Context(), time.Second/2)
			defer cancel()
			f.srv.ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(ctx, http.MethodPost, "/v1/take",
				strings.NewReader(body)))
			if a := f.take(body); !a.Allowed || !a.Replayed {
				t.Errorf("%s: sent again: %+v", body, a)
			}
			time.Sleep(time.Minute)
			if got := f.used("slots", api.DefaultKey)["slots"]; got != 1 {
				t.Errorf("%s: %d slots are held", body, got)
			}
		})
	}
}

// A problem says that nothing was spent only where that is known.
func TestProblemsSayWhatMayBeSpent(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		err  error
		code api.Code
		says string
	}{
		{context.Canceled, api.CodeCancelled, "nothing was spent"},
		{&drawgate.GaveUpError{Err: context.Canceled}, api.CodeCancelled, "it was given back"},
		{
			&drawgate.GaveUpError{MaySpend: true, Err: context.Canceled}, api.CodeCancelled,
			"units may be spent, or held",
		},
		{
			&drawgate.GaveUpError{MaySpend: true, Err: drawgate.ErrDeadline}, api.CodeStoreUnavailable,
			"units may be spent, or held",
		},
	} {
		p := present.Problem(c.err)
		if p.Code != c.code || !strings.Contains(p.Detail, c.says) {
			t.Errorf("%v: %+v", c.err, p)
		}
	}
}

// A wait whose time is over while the store is asked was not decided, and says whether its units
// may be spent: not if the library cancels what it may hold.
func TestWaitThatEndsWhileTheStoreIsAsked(t *testing.T) {
	t.Parallel()
	for body, may := range map[string]bool{
		`{"policy":"slots","hold_ms":600000,"wait_ms":500}`:                                       false,
		`{"policy":"slots","hold_ms":600000,"wait_ms":500,"id":"job","grant":"00000000000000a1"}`: true,
		`{"policy":"llm","wait_ms":500}`:                                                          true,
	} {
		synctest.Test(t, func(t *testing.T) {
			f := setup{store: slowly{memstore.New(nil)}}.inBubble(t)
			var p api.Problem
			if got := f.do("POST", "/v1/take", body, &p); got != 503 || p.Code != api.CodeStoreUnavailable ||
				strings.Contains(p.Detail, "may be spent") != may {
				t.Errorf("%s: %d %+v", body, got, p)
			}
		})
	}
}
