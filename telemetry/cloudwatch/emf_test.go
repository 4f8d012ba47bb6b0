package cloudwatch_test

import (
	"context"
	"errors"
	"io"
	"math"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/store/dynamostore"
	"github.com/drawgate/drawgate/telemetry/cloudwatch"
)

// A distribution of more values than a line can have is divided among several lines; of very many
// values some are left out, evenly. Sums of counts stay exact.
//
// req: A15
func TestManyValues(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ calls, values int }{{1, 1}, {100, 100}, {101, 101}, {1000, 1000}, {50_000, 1000}} {
		w := &lines{}
		m := newMetrics(t, w)
		total := 0.0
		for i := range c.calls {
			took := time.Duration(i+1) * time.Millisecond
			total += float64(i + 1)
			m.Observer().Called(&drawgate.StoreCall{Op: "take", Took: took})
		}
		got := flush(t, m, w)[cloudwatch.StoreLatency]
		if len(got) != c.values || !slices.IsSorted(got) {
			t.Errorf("%d calls: %d values, sorted %v, want %d", c.calls, len(got), slices.IsSorted(got), c.values)
			continue
		}
		mean := read{"": got}.sum("") / float64(len(got))
		if want := total / float64(c.calls); math.Abs(mean-want) > want/100 {
			t.Errorf("%d calls: the average is %v, want %v", c.calls, mean, want)
		}
		for _, part := range []float64{0.5, 0.99} {
			want := part * float64(c.calls)
			if p := got[int(part*float64(len(got)-1))]; c.calls > 1 && math.Abs(p-want) > want/8+2 {
				t.Errorf("%d calls: percentile %v is %v, want about %v", c.calls, part, p, want)
			}
		}
	}
}

// Retries keep their number and their sum, however many calls there were: the dashboard shows the
// sum. What else is known of the process is in other lines.
//
// req: A15
func TestManyRetries(t *testing.T) {
	t.Parallel()
	for _, calls := range []int{1, 1000, 1001, 50_000} {
		w := &lines{}
		m := newMetrics(t, w)
		o, sum := m.Store(), 0
		for i := range calls {
			retries := i % 7 / 5 * (i % 4)
			sum += retries
			o.Called(&dynamostore.Call{Attempts: 1 + retries, Throttled: 1})
		}
		got := flush(t, m, w)
		got.want(t, cloudwatch.StoreRetries, calls, float64(sum))
		got.want(t, cloudwatch.StoreThrottled, 1, float64(calls))
	}
}

// What is left of a limit keeps its least value, its greatest one and its average.
//
// req: A13
func TestAvailableKeepsItsExtremes(t *testing.T) {
	t.Parallel()
	w := &lines{}
	m := newMetrics(t, w)
	l := limiter(t, drawgate.PerMinute("p", 1000), m.Observer())
	for range 300 {
		if _, err := l.Allow(t.Context(), "a"); err != nil {
			t.Fatal(err)
		}
	}
	got := flush(t, m, w)
	values := got[of(cloudwatch.TokensAvailable, "RPM", "p")]
	if len(values) != 100 || slices.Min(values) != 700 || slices.Max(values) != 999 ||
		math.Abs(got.sum(of(cloudwatch.TokensAvailable, "RPM", "p"))/100-849.5) > 1 {
		t.Errorf("got %v", values)
	}
	got.want(t, of(cloudwatch.TokensAcquired, "RPM", "p"), 1, 300)
}

// writer is one that fails while down is set, after that many bytes.
type writer struct {
	lines
	down  atomic.Bool
	after int
}

var errDisk = errors.New("no space left on device")

func (w *writer) Write(p []byte) (int, error) {
	if !w.down.Load() {
		return w.lines.Write(p)
	}
	n, _ := w.lines.Write(p[:min(w.after, len(p))])
	return n, errDisk
}

// What a writer does not take is dropped, counted, and reported to whoever flushes. A line that was
// written in part does not damage the next one.
func TestWriterThatFails(t *testing.T) {
	t.Parallel()
	for _, after := range []int{0, 20} {
		w := &writer{after: after}
		w.down.Store(true)
		m := newMetrics(t, w)
		m.Observer().Called(&drawgate.StoreCall{Op: "take", Took: time.Millisecond})
		if err := m.Flush(t.Context()); !errors.Is(err, errDisk) || m.Dropped() != 1 {
			t.Errorf("got %v, %d dropped, want %v and 1", err, m.Dropped(), errDisk)
		}
		w.down.Store(false)
		m.Observer().Called(&drawgate.StoreCall{Op: "take", Took: 2 * time.Millisecond})
		if err := m.Flush(t.Context()); err != nil {
			t.Error(err)
		}
		text := w.Take()
		if after > 0 {
			_, text, _ = strings.Cut(text, "\n")
		}
		got, _ := parse(t, text)
		got.want(t, cloudwatch.StoreLatency, 1, 2)
	}
}

// blocked is a writer that writes only after it is opened.
type blocked struct {
	lines
	reached chan struct{} // one element for each Write that has begun
	open    chan struct{}
}

func (b *blocked) Write(p []byte) (int, error) {
	b.reached <- struct{}{}
	<-b.open
	return b.lines.Write(p)
}

// While a writer blocks, nobody who takes waits, a flush waits no longer than its context, and what
// happens is added up for later: nothing is lost.
func TestWriterThatBlocks(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := &blocked{reached: make(chan struct{}, 100), open: make(chan struct{})}
		m, err := cloudwatch.New(&cloudwatch.Options{EMF: w})
		if err != nil {
			t.Fatal(err)
		}
		l := limiter(t, drawgate.PerMinute("p", 1_000_000), m.Observer())
		ask := func(n int) {
			for range n {
				if _, err := l.Allow(t.Context(), "a"); err != nil {
					t.Fatal(err)
				}
			}
		}
		ask(3)
		<-w.reached // the minute's report is stuck
		start := time.Now()
		ask(4)
		if took := time.Since(start); took != 0 {
			t.Errorf("takes waited %v", took)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := m.Flush(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v, want that the time is over", err)
		}
		time.Sleep(time.Hour)
		ask(5)
		close(w.open)
		if err := m.Close(t.Context()); err != nil {
			t.Error(err)
		}
		got, _ := parse(t, w.Take())
		if sum := got.sum(of(cloudwatch.TokensAcquired, "RPM", "p")); sum != 12 || m.Dropped() != 0 {
			t.Errorf("%v takes are reported, %d points are dropped, want 12 and 0", sum, m.Dropped())
		}
	})
}

// A process reports once per interval, and the rest when it ends.
func TestInterval(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := &lines{}
		m, err := cloudwatch.New(&cloudwatch.Options{EMF: w, Interval: 10 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		l := limiter(t, drawgate.PerMinute("p", 1_000_000), m.Observer())
		for n := 1; n <= 3; n++ {
			for range n {
				_, _ = l.Allow(t.Context(), "a")
			}
			if text := w.Take(); text != "" {
				t.Errorf("this was reported too early: %q", text)
			}
			time.Sleep(10*time.Second + time.Millisecond)
			got, _ := parse(t, w.Take())
			got.want(t, of(cloudwatch.TokensAcquired, "RPM", "p"), 1, float64(n))
		}
		_, _ = l.Allow(t.Context(), "a")
		if err := m.Close(t.Context()); err != nil {
			t.Error(err)
		}
		got, _ := parse(t, w.Take())
		got.want(t, of(cloudwatch.TokensAcquired, "RPM", "p"), 1, 1)
		if err := m.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// A flush whose context has ended before says so, each time. What had happened is reported all the
// same.
func TestFlushAfterItsTime(t *testing.T) {
	t.Parallel()
	w := &lines{}
	m := newMetrics(t, w)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for range 100 {
		m.Observer().Called(&drawgate.StoreCall{Op: "take", Took: time.Millisecond})
		if err := m.Flush(ended); !errors.Is(err, context.Canceled) {
			t.Fatalf("got %v, want %v", err, context.Canceled)
		}
	}
	flush(t, m, w).want(t, cloudwatch.StoreLatency, 100, 100)
}

// With InCall no goroutine is needed: the first event after the interval writes its line before the
// take returns. That is how a function that nobody flushes reports, although it stands still
// between its calls.
//
// req: A13
func TestInCall(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := &lines{}
		m, err := cloudwatch.New(&cloudwatch.Options{EMF: w, Interval: time.Minute, InCall: true})
		if err != nil {
			t.Fatal(err)
		}
		l := limiter(t, drawgate.PerMinute("p", 1_000_000), m.Observer())
		_, _ = l.Allow(t.Context(), "a")
		time.Sleep(time.Hour) // it stands still
		if text := w.Take(); text != "" {
			t.Errorf("somebody wrote %q", text)
		}
		_, _ = l.Allow(t.Context(), "a")
		got, _ := parse(t, w.Take()) // without waiting for anything
		got.want(t, of(cloudwatch.TokensAcquired, "RPM", "p"), 1, 2)
		_, _ = l.Allow(t.Context(), "a")
		if text := w.Take(); text != "" {
			t.Errorf("within the interval somebody wrote %q", text)
		}
		if err := m.Flush(t.Context()); err != nil { // at the end of the invocation
			t.Error(err)
		}
		got, _ = parse(t, w.Take())
		got.want(t, of(cloudwatch.TokensAcquired, "RPM", "p"), 1, 1)
		_ = m.Close(t.Context())
	})
}

// Mistakes in the options are reported by New.
func TestBadOptions(t *testing.T) {
	t.Parallel()
	for _, o := range []cloudwatch.Options{
		{},
		{EMF: io.Discard, Namespace: "AWS/EC2"},
		{EMF: io.Discard, Namespace: ":a"},
		{EMF: io.Discard, Namespace: "a b"},
		{EMF: io.Discard, Namespace: strings.Repeat("a", 256)},
	} {
		if m, err := cloudwatch.New(&o); err == nil {
			t.Errorf("%+v is accepted: %v", o, m)
		}
	}
	w := &lines{}
	m, err := cloudwatch.New(&cloudwatch.Options{EMF: w, Namespace: "My/App"})
	if err != nil {
		t.Fatal(err)
	}
	m.Observer().Called(&drawgate.StoreCall{Took: 1})
	if err := m.Close(t.Context()); err != nil || !strings.Contains(w.Take(), `"Namespace":"My/App"`) {
		t.Error("the namespace is not used:", err)
	}
}
