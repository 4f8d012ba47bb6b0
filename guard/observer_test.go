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
	"github.com/drawgate/drawgate/guard"
)

// events writes down what a guard tells.
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
		Closed: func(c *guard.Closed) { e.note("closed decided=%d owed=%d", c.Decided, c.Owed) },
		Charged: func(c *guard.Charged) {
			e.mu.Lock()
			defer e.mu.Unlock()
			for i := range c.Buckets {
				e.units += c.Buckets[i].N[0]
			}
		},
	}
}

// TestEvents tells of an outage in its order, each thing once.
//
// req: A10, D10, E7
func TestEvents(t *testing.T) {
	t.Parallel()
	e := &events{}
	opts := full(1)
	opts.Observer = e.observer()
	bubble(t, opts, func(t *testing.T, g *guard.Store, store *faulty) {
		plan := policy(t, 0, rolling(100, time.Hour))
		take(t, g, plan, "k", 1)
		store.fail(&drawgate.StoreError{Store: "faulty", Op: "take", Err: errors.New("NOAUTH"), Fault: drawgate.FaultConfiguration})
		for i := range 20 {
			take(t, g, plan, fmt.Sprint(i), 1)
			synctest.Wait() // the store is told of it in the background, which fails too
		}
		time.Sleep(time.Minute)
		back(t, g, store)
		time.Sleep(time.Second)
		e.mu.Lock()
		defer e.mu.Unlock()
		want := []string{
			"error take configuration", "fallback configuration", "error charge configuration", "error take configuration", "opened configuration",
			"probe", "closed decided=20 owed=20",
		}
		if !slices.Equal(e.all, want) {
			t.Errorf("events\n%s\nwant\n%s", strings.Join(e.all, "\n"), strings.Join(want, "\n"))
		}
		if e.units != 20 {
			t.Errorf("%d units charged, want 20", e.units)
		}
	})
}

// TestOneWarningPerCause, each minute, and no keys in it. What is new is said at once; that the store is back is said.
//
// req: E7
func TestOneWarningPerCause(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	opts := full(1)
	opts.Logger = slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}}))
	bubble(t, opts, func(t *testing.T, g *guard.Store, store *faulty) {
		plan := policy(t, 0, rolling(1000, time.Hour))
		for round := range 4 { // flapping, for less than a minute
			store.set(refuses)
			for range 5 {
				take(t, g, plan, "secret-key", 1)
			}
			if round == 2 {
				store.fail(&drawgate.StoreError{Store: "faulty", Op: "take", Err: errors.New("WRONGPASS"), Fault: drawgate.FaultConfiguration})
			}
			time.Sleep(5 * time.Second)
			back(t, g, store)
			store.fail(&drawgate.StoreError{Store: "faulty", Op: "take", Err: errors.New("WRONGPASS"), Fault: drawgate.FaultConfiguration})
			take(t, g, plan, "secret-key", 1)
			back(t, g, store)
			store.fail(nil)
			take(t, g, plan, "secret-key", 0)
		}
		store.set(well)
		wantBack(t, g, 3*time.Second)
		time.Sleep(2 * time.Minute)
		store.set(refuses)
		take(t, g, plan, "secret-key", 1)
	})
	text := log.String()
	if strings.Contains(text, "secret") {
		t.Errorf("a key is told:\n%s", text)
	}
	for cause, want := range map[string]int{"fault=transient": 2, "fault=configuration": 1, "admit by the default": 1} {
		if got := strings.Count(text, cause); got != want {
			t.Errorf("%q is said %d times, want %d:\n%s", cause, got, want, text)
		}
	}
	if !strings.Contains(text, "the store is back") {
		t.Errorf("the return is not told:\n%s", text)
	}
}
