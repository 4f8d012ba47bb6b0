package redisstore_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/internal/redistest"
	"github.com/drawgate/drawgate/store"
	"github.com/drawgate/drawgate/store/redisstore"
)

func day(tb testing.TB, amount int64) *store.Plan {
	tb.Helper()
	return compile(tb, "day", drawgate.Limit{Name: "d", Kind: drawgate.Rolling, Window: 24 * time.Hour, Amount: amount})
}

// failed checks that err is a StoreError, that it matches what it should, and that it names no
// secret.
func failed(t *testing.T, what string, err, is error) {
	t.Helper()
	var se *store.Error
	if !errors.As(err, &se) || !errors.Is(err, store.ErrStoreUnavailable) || se.Store != "redis" {
		t.Errorf("%s: %v (%T), want a StoreError", what, err, err)
		return
	}
	if is != nil && !errors.Is(err, is) {
		t.Errorf("%s: %v, want one that is %q", what, err, is)
	}
	if strings.Contains(err.Error(), "secret") {
		t.Errorf("%s: the error tells a secret: %v", what, err)
	}
}

// tryTake takes, and returns the error that kept the take from being decided.
func tryTake(ctx context.Context, s store.Store, t store.Take) error {
	_, err := decide(ctx, s, t)
	return err
}

// TestPeers10LostReplyIsNotChargedTwice: a client that sends a script again after its reply was
// lost would charge twice.
//
// req: A12, E10
func TestPeers10LostReplyIsNotChargedTwice(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	p := redistest.NewProxy(t, server.Addr)
	plan := day(t, 1000)
	direct := open(t, server, nil)
	s, err := redisstore.Open("redis://"+p.Addr, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if err := s.Ping(t.Context()); err != nil {
		t.Fatal(err)
	}
	again := func(f func() error) { // connections that were cut are found out by use
		t.Helper()
		var err error
		for range 5 {
			if err = f(); err == nil {
				return
			}
		}
		t.Fatal(err)
	}
	lose := func(f func() error) {
		t.Helper()
		for range 20 { // until no connection is new: the mark is read first on those, and then nothing is sent
			again(func() error { return s.Ping(t.Context()) })
		}
		p.Mute.Store(true)
		err := f()
		p.Mute.Store(false)
		failed(t, "a lost reply", err, store.ErrUnknownOutcome)
	}
	used := func() int64 {
		t.Helper()
		return peek(t, direct, takeOf(plan, "k").Buckets[0]).States[0].Used
	}
	plain := takeOf(plan, "k", 1)
	lose(func() error { return tryTake(t.Context(), s, plain) })
	if got := used(); got != 1 {
		t.Errorf("a plain take whose reply was lost was charged %d times, want once", got)
	}
	// A take with an id is sent again by its caller, and replays.
	res := held(takeOf(plan, "k", 10), "id", time.Minute)
	lose(func() error { return tryTake(t.Context(), s, res) })
	again(func() error { return tryTake(t.Context(), s, res) })
	if got := used(); got != 11 {
		t.Errorf("%d units are used after a replay, want 11", got)
	}
	// So is a settlement, which credits once.
	st := store.Settlement{Op: store.OpSettle, ID: "id", Buckets: takeOf(plan, "k", 4).Buckets}
	trySettle := func() error {
		var o [1]store.Outcome
		if err := s.Settle(t.Context(), []store.Settlement{st}, o[:]); err != nil {
			return err
		}
		return o[0].Err
	}
	lose(trySettle)
	if got := used(); got != 5 {
		t.Errorf("%d units are used after the settlement, want 5", got)
	}
	again(trySettle)
	if got := used(); got != 5 {
		t.Errorf("%d units are used after the settlement came twice, want 5", got)
	}
}

// TestScriptIsLoadedAgain flushes the server's scripts, as a restart does.
func TestScriptIsLoadedAgain(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	s, c, plan := open(t, server, nil), client(t, server), day(t, 100)
	flush := func() {
		t.Helper()
		if err := c.Do(t.Context(), c.B().ScriptFlush().Build()).Error(); err != nil {
			t.Fatal(err)
		}
	}
	take(t, s, takeOf(plan, "k", 1))
	flush()
	if d := take(t, s, takeOf(plan, "k", 1)); !d.Allowed {
		t.Errorf("a take after SCRIPT FLUSH: %v", d.Fail)
	}
	flush()
	batch := make([]store.Take, 10)
	for i := range batch {
		batch[i] = takeOf(plan, fmt.Sprint("k", i%2), 1)
	}
	out := make([]store.Verdict, len(batch))
	if err := s.Take(t.Context(), batch, out); err != nil {
		t.Fatal(err)
	}
	for i := range out {
		if !out[i].Allowed {
			t.Errorf("take %d of a batch after SCRIPT FLUSH: %v", i, out[i].Fail)
		}
	}
	if got := peek(t, s, takeOf(plan, "k0").Buckets[0]).States[0].Used; got != 5 {
		t.Errorf("%d units are used, want 5: each take once", got)
	}
}

// req: E7
func TestServerStandsStill(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	s, plan := open(t, server, nil), day(t, 100)
	take(t, s, takeOf(plan, "k", 1))
	server.Stop()
	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	start := time.Now()
	err := tryTake(ctx, s, takeOf(plan, "k", 1))
	took := time.Since(start)
	server.Continue()
	failed(t, "a deadline", err, context.DeadlineExceeded)
	failed(t, "a deadline", err, store.ErrUnknownOutcome)
	if took > 5*time.Second {
		t.Errorf("a call with a deadline of 500 ms took %v", took)
	}
	comesBack(t, s, plan, 1)
}

// comesBack waits until so many takes in a row are decided: each connection finds out by itself
// that its server is there again.
func comesBack(t *testing.T, s *redisstore.Store, plan *store.Plan, inARow int) {
	t.Helper()
	end := time.Now().Add(patience)
	for good := 0; good < inARow; {
		good++
		if err := tryTake(t.Context(), s, takeOf(plan, "k", 0)); err != nil {
			good = 0
			if time.Now().After(end) {
				t.Fatalf("the store does not come back: %v", err)
			}
		}
	}
}

// req: E1, E7
func TestServerComesAndGoes(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, "--appendonly", "yes", "--appendfsync", "always")
	plan := day(t, 5)
	server.Kill9()
	s := open(t, server, nil)
	failed(t, "a server that is away at the start", tryTake(t.Context(), s, takeOf(plan, "k", 1)), nil)
	failed(t, "a ping", s.Ping(t.Context()), nil)
	server.Restart()
	for range 3 {
		take(t, s, takeOf(plan, "k", 1))
	}
	server.Kill9()
	failed(t, "a server that went away", tryTake(t.Context(), s, takeOf(plan, "k", 1)), nil)
	server.Restart()
	comesBack(t, s, plan, 2)
	if got := peek(t, open(t, server, nil), takeOf(plan, "k").Buckets[0]).States[0].Used; got != 3 {
		t.Errorf("%d units are used after a crash, want 3", got)
	}
}

// TestForeignContentIsLeftAlone puts what is not ours where a bucket should be.
func TestForeignContentIsLeftAlone(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	s, c, plan := open(t, server, nil), client(t, server), day(t, 5)
	two := compile(t, "two", drawgate.Limit(plan.Policy().Limits[0]),
		drawgate.Limit{Name: "b", Kind: drawgate.Bucket, Window: time.Second, Amount: 9})
	gcra := compile(t, "lean", drawgate.Limit{Name: "b", Kind: drawgate.Bucket, Window: time.Second, Amount: 9})
	for _, plan := range []*store.Plan{plan, two, gcra} {
		take(t, s, takeOf(plan, "newer", 1))
		for _, f := range []struct {
			name string
			put  rueidis.Completed
		}{
			{"secret string", c.B().Set().Key("drawgate::" + plan.Name() + ":secret%20string").Value("x").Build()},
			{"newer", c.B().Hset().Key("drawgate::"+plan.Name()+":newer").FieldValue().FieldValue("h",
				"\x02\x00"+strings.Repeat("x", 57)).Build()},
			{"short", c.B().Hset().Key("drawgate::"+plan.Name()+":short").FieldValue().FieldValue("h", "\x01").Build()},
			{"garbage", c.B().Hset().Key("drawgate::"+plan.Name()+":garbage").FieldValue().FieldValue("h",
				"\x01\x00"+strings.Repeat("z", 60)).Build()},
		} {
			if err := c.Do(t.Context(), f.put).Error(); err != nil {
				t.Fatal(err)
			}
			tk := takeOf(plan, f.name, 1)
			failed(t, plan.Name()+", take from "+f.name, tryTake(t.Context(), s, tk), redisstore.ErrMisconfigured)
			failed(t, plan.Name()+", hold of "+f.name, tryTake(t.Context(), s, held(tk, "id", time.Second)),
				redisstore.ErrMisconfigured)
			out := make([]store.Outcome, 1)
			if err := s.Settle(t.Context(), []store.Settlement{{Op: store.OpCancel, ID: "id", Buckets: tk.Buckets}},
				out); err != nil {
				t.Fatal(err)
			}
			failed(t, plan.Name()+", cancel on "+f.name, out[0].Err, redisstore.ErrMisconfigured)
			// The others of a batch are decided.
			ds := make([]store.Verdict, 2)
			if err := s.Take(t.Context(), []store.Take{tk, takeOf(plan, "fine", 0)}, ds); err != nil {
				t.Fatal(err)
			}
			if ds[0].Fail == nil || !ds[1].Allowed {
				t.Errorf("a batch with %s: %v, %v", f.name, ds[0].Fail, ds[1].Fail)
			}
		}
	}
	n, err := c.Do(t.Context(), c.B().Dbsize().Build()).AsInt64()
	if err != nil || n != 13 {
		t.Errorf("%d keys are left, %v; want 13 with the mark", n, err)
	}
}

func TestServerIsFull(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	server := redistest.Start(t, "--maxmemory", "3mb", "--maxmemory-policy", "allkeys-lru")
	s := open(t, server, &redisstore.Options{Logger: slog.New(slog.NewTextHandler(&log, nil))})
	c, plan := client(t, server), day(t, 5)
	take(t, s, takeOf(plan, "k", 1))
	if !strings.Contains(log.String(), "noeviction") {
		t.Errorf("a server that evicts is not warned of: %q", log.String())
	}
	for _, set := range [][2]string{{"maxmemory-policy", "noeviction"}, {"maxmemory", "1"}} {
		if err := c.Do(t.Context(), c.B().ConfigSet().ParameterValue().ParameterValue(set[0],
			set[1]).Build()).Error(); err != nil {
			t.Fatal(err)
		}
	}
	err := tryTake(t.Context(), s, takeOf(plan, "k", 1))
	failed(t, "a full server", err, nil)
	if errors.Is(err, store.ErrUnknownOutcome) || !strings.Contains(err.Error(), "OOM") {
		t.Errorf("a full server: %v, want OOM, which was not carried out", err)
	}
	failed(t, "a ping of a full server", s.Ping(t.Context()), nil)
	if got := peek(t, s, takeOf(plan, "k").Buckets[0]).States[0].Used; got != 1 {
		t.Errorf("%d units are used, want 1", got)
	}
}

func TestWrongPassword(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, "--requirepass", "secret-right")
	for _, url := range []string{"redis://default:secret-wrong@" + server.Addr, "redis://" + server.Addr} {
		s, err := redisstore.Open(url, nil)
		if err != nil {
			t.Fatal(err)
		}
		failed(t, "a wrong password", tryTake(t.Context(), s, takeOf(day(t, 5), "k", 1)), redisstore.ErrMisconfigured)
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
	s, err := redisstore.Open("valkey://default:secret-right@"+server.Addr+"/3", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if d := take(t, s, takeOf(day(t, 5), "k", 1)); !d.Allowed {
		t.Error(d.Fail)
	}
}

func TestOpenRefuses(t *testing.T) {
	t.Parallel()
	for _, url := range []string{
		"", "http://localhost", "redis://user:sec ret@h:port", "redis://:secret@h/x",
		"redis://h?addr=h2:1", "redis://h?master_set=m",
	} {
		if s, err := redisstore.Open(url, nil); err == nil || !errors.Is(err, store.ErrInvalid) ||
			strings.Contains(err.Error(), "sec") {
			t.Errorf("Open(%q): %v, %v", url, s, err)
		}
	}
}

func TestClose(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	c := client(t, server)
	s := redisstore.New(c, nil)
	take(t, s, takeOf(day(t, 5), "k", 1))
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if err := tryTake(t.Context(), s, takeOf(day(t, 5), "k", 1)); !errors.Is(err, store.ErrClosed) {
		t.Errorf("a take after Close: %v", err)
	}
	if err := c.Do(t.Context(), c.B().Ping().Build()).Error(); err != nil {
		t.Errorf("the caller's client was closed: %v", err)
	}
}

// TestInvalid sends what no limiter would send.
func TestInvalid(t *testing.T) {
	t.Parallel()
	s, plan := open(t, redistest.Start(t), nil), day(t, 5)
	twice := takeOf(plan, "k", 1)
	twice.Buckets = append(twice.Buckets, twice.Buckets[0])
	for what, tk := range map[string]store.Take{
		"a bucket twice": twice, "no bucket": {}, "a hold without an id": held(takeOf(plan, "k", 1), "", time.Second),
		"an id without a hold": held(takeOf(plan, "k", 1), "id", 0),
		"a hold of 100 years":  held(takeOf(plan, "k", 1), "id", 100*365*24*time.Hour),
	} {
		if err := tryTake(t.Context(), s, tk); !errors.Is(err, store.ErrInvalid) ||
			errors.Is(err, store.ErrUnknownOutcome) {
			t.Errorf("%s: %v", what, err)
		}
	}
}
