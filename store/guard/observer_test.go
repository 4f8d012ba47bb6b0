package guard_test

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/engine"
	"github.com/drawgate/drawgate/store"
	"github.com/drawgate/drawgate/store/guard"
)

// events records a guard's events.
type events struct {
	mu    sync.Mutex
	all   []string
	units int64 // charged
}

func (e *events) note(format string, args ...any) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.all = append(e.all, fmt.Sprintf(format, args...))
}

func (e *events) observer() *guard.Observer {
	return &guard.Observer{
		BackendError:      func(b *guard.BackendError) { e.note("error %s %v", b.Op, b.Fault) },
		FallbackActivated: func(f *guard.FallbackActivated) { e.note("fallback %v", f.Fault) },
		Opened:            func(o *guard.Opened) { e.note("opened %v", o.Fault) },
		Probed: func(p *guard.Probe) {
			if p.Err == nil {
				e.note("probe")
			}
		},
		Closed: func(c *guard.Closed) { e.note("closed decided=%d owed=%d", c.Decided, c.Pending) },
		Charged: func(c *guard.Charged) {
			e.mu.Lock()
			defer e.mu.Unlock()
			for i := range c.Buckets {
				e.units += c.Buckets[i].N[0]
			}
		},
	}
}

// TestAFailedDeliveryIsOneError: also if the store fails each item of it instead of the call.
//
// req: A10, E7
func TestAFailedDeliveryIsOneError(t *testing.T) {
	t.Parallel()
	e := &events{}
	opts := full(1)
	opts.Observer = e.observer()
	bubble(t, opts, func(t *testing.T, g *guard.Store, inner *faulty) {
		plan := policy(t, 0, rolling(100, time.Hour))
		inner.mu.Lock()
		inner.blocked = func(store.BucketCost) error {
			return &store.Error{Store: "faulty", Op: "take", Err: errRefused, Fault: store.FaultTransient}
		}
		inner.mu.Unlock()
		take(t, g, plan, "k", 1)
		time.Sleep(10 * time.Second) // deliveries fail until the breaker opens
		e.mu.Lock()
		defer e.mu.Unlock()
		want := []string{
			"error take transient", "fallback transient", "error charge transient",
			"error charge transient", "opened transient",
		}
		if len(e.all) > 2 && e.all[2] == want[1] { // as in TestEvents
			e.all[1], e.all[2] = e.all[2], e.all[1]
		}
		if len(e.all) < len(want) || !slices.Equal(e.all[:len(want)], want) {
			t.Errorf("events\n%s\nwant\n%s", strings.Join(e.all, "\n"), strings.Join(want, "\n"))
		}
	})
}

// TestEvents: an outage is reported in order, each thing once.
//
// req: A10, D10, E7
func TestEvents(t *testing.T) {
	t.Parallel()
	e := &events{}
	opts := full(1)
	opts.Observer = e.observer()
	bubble(t, opts, func(t *testing.T, g *guard.Store, inner *faulty) {
		plan := policy(t, 0, rolling(100, time.Hour))
		take(t, g, plan, "k", 1)
		inner.fail(&store.Error{
			Store: "faulty", Op: "take", Err: errors.New("NOAUTH"),
			Fault: store.FaultConfiguration,
		})
		for i := range 20 {
			take(t, g, plan, fmt.Sprint(i), 1)
			synctest.Wait() // the guard delivers in the background, which fails too
		}
		time.Sleep(time.Minute)
		back(t, g, inner)
		time.Sleep(time.Second)
		e.mu.Lock()
		defer e.mu.Unlock()
		want := []string{
			"error take configuration", "fallback configuration", "error charge configuration",
			"error take configuration", "opened configuration",
			"probe", "closed decided=20 owed=20",
		}
		if len(e.all) > 2 && e.all[2] == want[1] { // the first delivery may fail before the take is decided here
			e.all[1], e.all[2] = e.all[2], e.all[1]
		}
		if !slices.Equal(e.all, want) {
			t.Errorf("events\n%s\nwant\n%s", strings.Join(e.all, "\n"), strings.Join(want, "\n"))
		}
		if e.units != 20 {
			t.Errorf("%d units charged, want 20", e.units)
		}
	})
}

// TestOneWarningPerCause: one every five minutes, and without keys. A new cause is logged at once,
// and so is the store's return.
//
// req: E7
func TestOneWarningPerCause(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	opts := full(1)
	opts.Logger = slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{ReplaceAttr: func(_ []string,
		a slog.Attr,
	) slog.Attr {
		if a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}}))
	bubble(t, opts, func(t *testing.T, g *guard.Store, inner *faulty) {
		plan := policy(t, 0, rolling(1000, time.Hour))
		for round := range 4 { // flapping, for less than a minute
			inner.set(refuses)
			for range 5 {
				take(t, g, plan, "secret-key", 1)
			}
			if round == 2 {
				inner.fail(&store.Error{
					Store: "faulty", Op: "take", Err: errors.New("WRONGPASS"),
					Fault: store.FaultConfiguration,
				})
			}
			time.Sleep(5 * time.Second)
			back(t, g, inner)
			inner.fail(&store.Error{
				Store: "faulty", Op: "take", Err: errors.New("WRONGPASS"),
				Fault: store.FaultConfiguration,
			})
			take(t, g, plan, "secret-key", 1)
			back(t, g, inner)
			inner.fail(nil)
			take(t, g, plan, "secret-key", 0)
		}
		inner.set(well)
		wantBack(t, g, 3*time.Second)
		time.Sleep(6 * time.Minute)
		inner.set(refuses)
		take(t, g, plan, "secret-key", 1)
	})
	text := log.String()
	if strings.Contains(text, "secret") {
		t.Errorf("a key is told:\n%s", text)
	}
	for cause, want := range map[string]int{
		"fault=transient": 2, "fault=configuration": 1, "use the default": 1,
		"event=RateLimiterFallbackActivated": 3, "the store needs repair": 1,
	} {
		if got := strings.Count(text, cause); got != want {
			t.Errorf("%q is said %d times, want %d:\n%s", cause, got, want, text)
		}
	}
	if !strings.Contains(text, "the store is available again") {
		t.Errorf("the return is not told:\n%s", text)
	}
}

// TestThreeOutagesWarnOnce: outages within half a minute of each other give one warning. If
// somebody else warns, the guard does not.
//
// req: E7
func TestThreeOutagesWarnOnce(t *testing.T) {
	t.Parallel()
	for every, want := range map[time.Duration]int{0: 1, -1: 0, time.Second: 3} {
		var log bytes.Buffer
		opts := full(1)
		opts.Logger, opts.WarnEvery = slog.New(slog.NewTextHandler(&log, nil)), every
		bubble(t, opts, func(t *testing.T, g *guard.Store, inner *faulty) {
			plan := policy(t, 0, rolling(1000, time.Hour))
			for range 3 {
				inner.set(refuses)
				for range 5 {
					take(t, g, plan, "k", 1)
					end(t, g, store.OpCharge, "", plan, "k", 1)
				}
				time.Sleep(5 * time.Second)
				back(t, g, inner)
			}
		})
		warned := strings.Count(log.String(), "level=WARN") + strings.Count(log.String(), "level=ERROR")
		if warned != want || strings.Count(log.String(), "the store is available again") != 3 {
			t.Errorf("every %v: %d warnings, want %d:\n%s", every, warned, want, log.String())
		}
	}
}

// TestShadowsAreNotCounted: takes of shadows do not count as decided by the guard, because nobody
// acts on them.
//
// req: D9, E9
func TestShadowsAreNotCounted(t *testing.T) {
	t.Parallel()
	var decided uint64
	opts := full(1)
	opts.Observer = &guard.Observer{Closed: func(c *guard.Closed) { decided = c.Decided }}
	bubble(t, opts, func(t *testing.T, g *guard.Store, store *faulty) {
		p := drawgate.Policy{Name: "p", Limits: []drawgate.Limit{{
			Name: "h", Kind: drawgate.Rolling, Amount: 100,
			Window: time.Hour,
		}}}
		eng, err := engine.New(g.Full(), engine.Config{Policies: []engine.Policy{
			{Policy: p}, {Policy: drawgate.Policy{Name: "candidate", Limits: p.Limits}, Shadow: true},
		}}, nil)
		if err != nil {
			t.Fatal(err)
		}
		defer eng.Close()
		store.set(refuses)
		for range 5 {
			res, err := eng.Take(t.Context(), &engine.Request{Asks: []engine.Ask{
				{Policy: "p", Key: "k"},
				{Policy: "candidate", Key: "k"},
			}})
			if err != nil || !res.Decision.Allowed || len(res.Shadow) != 1 {
				t.Fatalf("%+v, %v", res, err)
			}
		}
		synctest.Wait()
		back(t, g, store)
		if got := g.State().Decided; got != 5 || decided != 5 {
			t.Errorf("%d takes were decided here, and %d are told, want 5", got, decided)
		}
	})
}
