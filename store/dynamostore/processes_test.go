//go:build unix

package dynamostore_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/internal/awstest"
	"github.com/drawgate/drawgate/internal/redistest"
	"github.com/drawgate/drawgate/store"
	"github.com/drawgate/drawgate/store/dynamostore"
)

// envWorker makes this test binary a worker: one of several processes that share buckets. It holds
// the worker in JSON.
const envWorker = "DRAWGATE_DYNAMO_WORKER"

func TestMain(m *testing.M) {
	if spec := os.Getenv(envWorker); spec != "" {
		if err := work(spec); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// worker says what a worker does.
type worker struct {
	URL, Prefix string
	Log         string // the file that it writes its takes to; "": none
	Kinds       []string
	Size        size
	Items       int // buckets of each kind
	Every, Rest int // it asks for every that many'th item, by this rest; Every is at least 1
	Stores      int // stores of the process, which share nothing
	Callers     int // callers of each store
	Begin, End  time.Time

	Most     int64         // units of a take: 1 to Most
	Holds    bool          // every third take is held, and then settled or canceled
	Patience float64       // the part of RetryAfter after which a bucket is asked again
	Timeout  time.Duration // of a call

	Lose, Throttle float64       // see faulty
	Slow           time.Duration // answers come up to so much later
	Wrong          time.Duration // the wall clock is ahead by so much when the process starts
	Behind, Blur   time.Duration // see NewWithError; a Blur of 0 means that the store finds out the time
	Leap           bool          // the clock of workers and service is leap
	Slot           bool          // it does nothing but hold the one slot of a bucket: see holdSlot
}

// report is what a worker counted from a second after its beginning.
type report struct {
	Grants, Refusals      int64 // of callers
	Reads, Writes, Failed int64 // requests; writes whose condition failed
	Unanswered            int64 // requests
	Lost, Throttled       int64 // by faulty
	Calls                 int64 // of the store: callers who share a request are one
	Blur                  time.Duration
}

// running is a worker at work.
type running struct {
	worker
	plans  []*store.Plan // by kind
	stores []*dynamostore.Store
	seq    atomic.Int64

	mu  sync.Mutex
	log *os.File
	due [][]time.Time // by kind and item; guarded by mu

	grants, refusals, calls, blur atomic.Int64 // from a second after the beginning
}

func work(spec string) error {
	w := &running{}
	if err := json.Unmarshal([]byte(spec), &w.worker); err != nil {
		return err
	}
	for _, k := range w.Kinds {
		p, err := drawgate.Policy{Name: k, Limits: w.Size.limits(k)}.Compile()
		if err != nil {
			return err
		}
		w.plans, w.due = append(w.plans, p.Plan), append(w.due, make([]time.Time, w.Items))
	}
	if w.Log != "" {
		f, err := os.Create(w.Log)
		if err != nil {
			return err
		}
		defer f.Close()
		w.log = f
	}
	count := &counting{next: direct, from: w.Begin.Add(time.Second)}
	conn := &faulty{next: &slow{next: count, most: w.Slow}, lose: w.Lose, throttle: w.Throttle}
	for range w.Stores {
		w.stores = append(w.stores, w.open(conn))
	}
	time.Sleep(time.Until(w.Begin))
	if w.Slot {
		if err := w.holdSlots(conn); err != nil {
			return err
		}
	}
	var wg sync.WaitGroup
	for _, s := range w.stores {
		for range w.Callers {
			wg.Go(func() {
				for time.Now().Before(w.End) {
					w.ask(s)
				}
			})
		}
	}
	wg.Wait()
	r := report{
		Grants: w.grants.Load(), Refusals: w.refusals.Load(), Calls: w.calls.Load(), Lost: conn.lost.Load(),
		Throttled: conn.throttled.Load(), Blur: time.Duration(w.blur.Load() / max(1, w.grants.Load())),
		Reads: count.reads.Load(), Writes: count.writes.Load(), Failed: count.failed.Load(),
		Unanswered: count.unanswered.Load(),
	}
	return json.NewEncoder(os.Stdout).Encode(r)
}

// open opens a store with the worker's clock.
func (w *running) open(conn http.RoundTripper) *dynamostore.Store {
	opts := &dynamostore.Options{Prefix: w.Prefix, Observer: &dynamostore.Observer{Called: func(*dynamostore.Call) {
		if w.counts() {
			w.calls.Add(1)
		}
	}}}
	c := through(&awstest.Server{URL: w.URL}, conn)
	switch {
	case w.Leap:
		return dynamostore.NewWithClock(c, "drawgate", opts, func() int64 { return w.micros() })
	case w.Blur > 0:
		return dynamostore.NewWithError(c, "drawgate", opts, w.Behind, w.Blur)
	default:
		return dynamostore.NewWithWallClock(c, "drawgate", opts, w.Wrong)
	}
}

// leapEvery is when leap goes forward.
const leapEvery = 4 * time.Second

// leap is a clock that goes forward by eight days again and again. Then all items have expired.
func leap(begin, t time.Time) time.Time {
	leaps := int64(t.Sub(begin) / leapEvery)
	return t.AddDate(0, 0, int(8*leaps))
}

// micros returns the instant, in Unix µs of the clock that all share.
func (w *worker) micros() int64 {
	t := time.Now()
	if w.Leap {
		t = leap(w.Begin, t)
	}
	return t.UnixMicro()
}

// counts reports whether it is time to count.
func (w *running) counts() bool { return time.Since(w.Begin) > time.Second }

// choose returns a bucket that is due, or none, and when to look again.
func (w *running) choose() (kind, item int, wait time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	now, next := time.Now(), time.Now().Add(20*time.Millisecond)
	n := len(w.Kinds) * w.Items
	first := rand.IntN(n)
	for i := range n {
		at := (first + i) % n
		kind, item = at/w.Items, at%w.Items
		switch d := w.due[kind][item]; {
		case item%w.Every != w.Rest:
		case !d.After(now):
			return kind, item, 0
		case d.Before(next):
			next = d
		}
	}
	return 0, 0, next.Sub(now)
}

// note writes a line to the log, which survives the process.
func (w *running) note(v ...any) {
	if w.log == nil {
		return
	}
	line := fmt.Appendln(nil, v...)
	w.mu.Lock()
	defer w.mu.Unlock()
	if _, err := w.log.Write(line); err != nil {
		panic(err)
	}
}

// ask takes once.
func (w *running) ask(s *dynamostore.Store) {
	kind, item, wait := w.choose()
	if wait > 0 {
		time.Sleep(wait)
		return
	}
	n, seq := 1+rand.Int64N(w.Most), w.seq.Add(1)
	t := store.Take{Buckets: w.buckets(kind, item, n)}
	held := w.Holds && rand.IntN(3) == 0
	if held {
		t.ID, t.Grant, t.Hold = fmt.Sprint(os.Getpid(), "-", seq), store.NewGrant(), 5*time.Second
	}
	ctx, cancel := context.WithTimeout(context.Background(), w.Timeout)
	defer cancel()
	w.note("take", seq, w.Kinds[kind], item, n, held, w.micros())
	d, err := take(ctx, s, t)
	answered := w.micros()
	switch {
	case err != nil:
		w.note(outcomeOf(err), seq, answered)
		if held && outcomeOf(err) == "unknown" {
			_ = w.end(s, &t, kind, item, 0)
		}
	case !d.Allowed:
		w.note("refused", seq, answered)
		w.mu.Lock()
		w.due[kind][item] = time.Now().Add(time.Duration(float64(d.RetryAfter) * w.Patience))
		w.mu.Unlock()
		if w.counts() {
			w.refusals.Add(1)
		}
	default:
		w.note("granted", seq, answered)
		if w.counts() {
			w.grants.Add(1)
			w.blur.Add(int64(s.Blur()))
		}
		if held {
			time.Sleep(rand.N(time.Second))
			used := rand.Int64N(n + 1)
			w.note("end", seq, used)
			w.note("ended", seq, w.end(s, &t, kind, item, used))
		}
	}
}

func (w *running) buckets(kind, item int, n int64) []store.BucketCost {
	b := store.BucketCost{Key: store.Key{Policy: w.Kinds[kind], Name: fmt.Sprint(item)}, Plan: w.plans[kind]}
	for i := range w.plans[kind].Policy().Limits {
		b.N[i] = n
	}
	return []store.BucketCost{b}
}

// end settles a reservation with what was used, or cancels it if that is nothing.
func (w *running) end(s *dynamostore.Store, t *store.Take, kind, item int, used int64) string {
	ctx, cancel := context.WithTimeout(context.Background(), w.Timeout)
	defer cancel()
	e := store.Settlement{Op: store.OpSettle, ID: t.ID, Grant: t.Grant, Buckets: w.buckets(kind, item, used)}
	if used == 0 {
		e.Op, e.Buckets = store.OpCancel, w.buckets(kind, item, store.KeepEstimate)
	}
	o, err := settle(ctx, s, e)
	switch {
	case err != nil:
		return outcomeOf(err)
	case o.Gone:
		return "gone"
	}
	return "done"
}

// outcomeOf says what an error means for the units.
func outcomeOf(err error) string {
	if errors.Is(err, store.ErrNothingDone) {
		return "undone"
	}
	if errors.Is(err, store.ErrStoreUnavailable) {
		return "unknown"
	}
	panic(err)
}

// counting is a connection that counts what is sent from an instant on.
type counting struct {
	next http.RoundTripper
	from time.Time

	reads, writes, failed, unanswered atomic.Int64
}

func (c *counting) RoundTrip(r *http.Request) (*http.Response, error) {
	counts := time.Now().After(c.from)
	resp, err := c.next.RoundTrip(r)
	if !counts {
		return resp, err
	}
	if isWrite(r) {
		c.writes.Add(1)
	} else {
		c.reads.Add(1)
	}
	switch {
	case err != nil:
		c.unanswered.Add(1)
	case resp.StatusCode != http.StatusOK: // no stand-in throttles
		c.failed.Add(1)
	}
	return resp, err
}

// slow is a connection whose answers come late.
type slow struct {
	next http.RoundTripper
	most time.Duration
}

func (s *slow) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := s.next.RoundTrip(r)
	if s.most > 0 {
		time.Sleep(rand.N(s.most))
	}
	return resp, err
}

// shield returns the URL of a proxy for a server, which carries out what it has received: dynalite
// crashes if a client is killed in the middle of a request.
func shield(t *testing.T, server *awstest.Server) string {
	t.Helper()
	target, err := url.Parse(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	p := httptest.NewServer(&httputil.ReverseProxy{
		Transport: direct,
		ErrorLog:  log.New(io.Discard, "", 0), // dynalite closes idle connections now and then
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(target)
			body, err := io.ReadAll(r.In.Body)
			if err != nil {
				body = nil // it is refused
			}
			r.Out = r.Out.WithContext(context.WithoutCancel(r.Out.Context()))
			r.Out.Body = io.NopCloser(bytes.NewReader(body))
		},
	})
	t.Cleanup(p.Close)
	return p.URL
}

// fleet is some workers.
type fleet struct {
	t     *testing.T
	dir   string
	logs  []string
	procs []*proc // by number
	all   []*proc // the killed ones too
}

// proc is the process of a worker.
type proc struct {
	worker   worker
	cmd      *exec.Cmd
	out, err bytes.Buffer
	killed   bool
}

// start starts a worker with a number.
func (f *fleet) start(i int, w worker) {
	f.t.Helper()
	for len(f.procs) <= i {
		f.procs = append(f.procs, nil)
	}
	if w.Log != "" {
		w.Log = filepath.Join(f.dir, fmt.Sprint(len(f.logs)))
		f.logs = append(f.logs, w.Log)
	}
	spec, err := json.Marshal(w)
	if err != nil {
		f.t.Fatal(err)
	}
	p := &proc{worker: w, cmd: exec.CommandContext(f.t.Context(), os.Args[0])}
	p.cmd.Env = append(os.Environ(), envWorker+"="+string(spec))
	p.cmd.Stdout, p.cmd.Stderr, p.cmd.SysProcAttr = &p.out, &p.err, redistest.DieWithParent()
	if err := p.cmd.Start(); err != nil {
		f.t.Fatal(err)
	}
	f.procs[i], f.all = p, append(f.all, p)
}

// restart kills a worker, and starts another one in its place.
func (f *fleet) restart(i int) {
	f.t.Helper()
	p := f.procs[i]
	p.killed = true
	_ = p.cmd.Process.Kill() // it may have ended already
	f.start(i, p.worker)
}

// wait waits for all workers, and returns what those that were not killed counted.
func (f *fleet) wait() (all []report) {
	f.t.Helper()
	for _, p := range f.all {
		err := p.cmd.Wait()
		if p.killed {
			continue
		}
		if err != nil {
			f.t.Fatalf("a worker failed: %v\n%s", err, p.err.String())
		}
		var r report
		if err := json.Unmarshal(p.out.Bytes(), &r); err != nil {
			f.t.Fatalf("a worker said %q: %v", p.out.String(), err)
		}
		all = append(all, r)
	}
	return all
}

// total adds up reports. Its Blur is the mean.
func total(all []report) (sum report) {
	for _, r := range all {
		sum.Grants += r.Grants
		sum.Refusals += r.Refusals
		sum.Calls += r.Calls
		sum.Reads += r.Reads
		sum.Writes += r.Writes
		sum.Failed += r.Failed
		sum.Unanswered += r.Unanswered
		sum.Lost += r.Lost
		sum.Throttled += r.Throttled
		sum.Blur += r.Blur / time.Duration(len(all))
	}
	return sum
}
