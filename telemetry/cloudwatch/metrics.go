package cloudwatch

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"math/bits"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/drawgate/drawgate/internal/outbox"
	"github.com/drawgate/drawgate/internal/pattern"
	"github.com/drawgate/drawgate/internal/sampler"
)

const (
	defaultInterval = time.Minute
	warnEvery       = 5 * time.Minute
	maxShards       = 8
)

// Options says where metrics go, and when. EMF or Put, or both, must be set.
type Options struct {
	// Namespace is "" for [DefaultNamespace].
	Namespace string
	// EMF receives lines in the embedded metric format, each in one Write. It is usually
	// [os.Stdout]. nil: none.
	EMF io.Writer
	// Put receives PutMetricData, usually a client of [Client]. nil: none.
	Put Putter
	// Interval is how often the metrics are reported. 0 means a minute. Negative: only by Flush and
	// Close.
	Interval time.Duration
	// InCall reports without a goroutine of its own: the first event after Interval writes the
	// lines before the call that it belongs to returns. So a slow EMF makes that call wait. It is
	// for a process that stands still between calls. Put still sends in the background.
	InCall bool
	// Logger gets a warning when metrics are lost, at most once in five minutes; nil discards.
	Logger *slog.Logger
}

// Metrics adds up what its observers are told, and reports it to CloudWatch. Its methods are safe
// for concurrent use. It must be closed.
//
// Observers never wait for a report, unless Options.InCall says so. They allocate only for policies
// and limits that are new, or that nobody used for an interval. Memory is bounded, however long
// nothing can be reported: what happens is only added up, and what cannot be sent is dropped, and
// counted in [Metrics.Dropped].
type Metrics struct {
	opts   Options
	emf    *emf    // nil: none
	put    *sender // nil: none
	shards []shard
	open   atomic.Bool  // the guard's breaker is: nobody asks the store
	due    atomic.Int64 // InCall: when to report next, in Unix nanoseconds

	reporting chan struct{} // holds one element while a report is made: the idle tallies are its own
	dropped   atomic.Int64
	warned    sampler.Sampler

	end    context.CancelFunc // of the loop
	loop   sync.WaitGroup
	closed sync.Once
}

// shard is a part of what has happened. There are several, so that callers on different processors
// seldom wait for each other.
type shard struct {
	mu     sync.Mutex
	active *tally // guarded by mu
	idle   *tally // of whoever reports
	_      [64]byte
}

var namespaces = pattern.New(`^[0-9A-Za-z._/#-][0-9A-Za-z._/#:-]{0,254}$`)

// CheckNamespace returns an error if CloudWatch does not take a namespace.
func CheckNamespace(namespace string) error {
	if !namespaces().MatchString(namespace) || strings.HasPrefix(namespace, "AWS/") {
		return fmt.Errorf("cloudwatch: the namespace %q does not have 1 to 255 letters, digits and . _ / # : -, or it begins with a colon or with AWS/", namespace)
	}
	return nil
}

// New returns metrics that report as opts says.
func New(opts *Options) (*Metrics, error) {
	m := &Metrics{opts: *opts, reporting: make(chan struct{}, 1)}
	switch {
	case opts.EMF == nil && opts.Put == nil:
		return nil, errors.New("cloudwatch: there is nowhere to report to: set EMF or Put")
	case opts.Namespace == "":
		m.opts.Namespace = DefaultNamespace
	}
	if err := CheckNamespace(m.opts.Namespace); err != nil {
		return nil, err
	}
	if m.opts.Interval == 0 {
		m.opts.Interval = defaultInterval
	}
	if m.opts.Logger == nil {
		m.opts.Logger = slog.New(slog.DiscardHandler)
	}
	m.shards = make([]shard, 1<<bits.Len(uint(min(maxShards, runtime.GOMAXPROCS(0))-1)))
	for i := range m.shards {
		m.shards[i].active, m.shards[i].idle = newTally(), newTally()
	}
	if opts.EMF != nil {
		m.emf = &emf{to: opts.EMF, namespace: m.opts.Namespace}
	}
	if opts.Put != nil {
		m.put = newSender(opts.Put, m.opts.Namespace, m.lost)
	}
	m.opts.InCall = opts.InCall && m.opts.Interval > 0
	m.due.Store(time.Now().Add(m.opts.Interval).UnixNano())
	ctx, end := context.WithCancel(context.Background())
	m.end = end
	if m.opts.Interval > 0 && !m.opts.InCall {
		m.loop.Go(func() { m.run(ctx) })
	}
	return m, nil
}

func newTally() *tally { return &tally{policies: map[string]*policyTally{}} }

// run reports at each interval, until Close.
func (m *Metrics) run(ctx context.Context) {
	tick := time.NewTicker(m.opts.Interval)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			_, _ = m.report(ctx) // it has warned
		case <-ctx.Done():
			return
		}
	}
}

// Flush reports what has happened, and waits until this and earlier reports are written and sent,
// or ctx ends: then they are still written and sent as soon as that is possible. A function of AWS
// Lambda calls it at the end of each invocation. The error says what could not be written and what
// could not be sent, the first of each, or that ctx ended, which is so also if it had ended before;
// [Metrics.Dropped] has all of it.
func (m *Metrics) Flush(ctx context.Context) error {
	r, err := m.report(ctx)
	if err == nil {
		err = ctx.Err()
	}
	if err != nil {
		return err
	}
	if !outbox.Await(ctx, r.written) {
		return ctx.Err()
	}
	var lost error
	for _, s := range r.sent {
		ok, err := s.Wait(ctx)
		if !ok {
			return errors.Join(r.err, lost, ctx.Err())
		}
		if lost == nil {
			lost = err
		}
	}
	if lost == nil {
		lost = r.dropped
	}
	return errors.Join(r.err, lost)
}

// Close reports the rest and ends. It waits until everything is written and sent, but not longer
// than ctx: what is not sent then is dropped. Observers may still be called afterwards, but nothing
// more is reported.
func (m *Metrics) Close(ctx context.Context) (err error) {
	m.closed.Do(func() {
		m.end()
		m.loop.Wait()
		m.due.Store(math.MaxInt64) // no call reports any more
		err = m.Flush(ctx)
		if m.put != nil {
			err = errors.Join(err, m.put.close(ctx))
		}
	})
	return err
}

// Dropped returns how many data points could not be written or sent.
func (m *Metrics) Dropped() int64 { return m.dropped.Load() }

// lost counts data points that were not reported, and warns of it.
func (m *Metrics) lost(n int, err error) {
	m.dropped.Add(int64(n))
	if _, ok := m.warned.Pass(time.Now(), warnEvery, 1); ok {
		m.opts.Logger.Warn("cloudwatch: metrics are lost", "points", n, "since_start", m.Dropped(), "error", err)
	}
}

// report is one that is made in the background.
type report struct {
	written chan struct{}     // closed when it was written and handed over; before that, the rest is not set
	sent    []*outbox.Sending // of Put: requests that are still to be sent
	dropped error             // of Put: that there was no room for others
	err     error             // what could not be written
}

// report begins to write what has happened, and to hand it over to be sent. It waits for another
// report no longer than ctx.
func (m *Metrics) report(ctx context.Context) (*report, error) {
	select {
	case m.reporting <- struct{}{}:
	default:
		select {
		case m.reporting <- struct{}{}:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	r := &report{written: make(chan struct{})}
	go func() {
		m.write(time.Now(), r)
		<-m.reporting
		close(r.written)
	}()
	return r, nil
}

// inCall reports if it is time to, unless somebody else is at it.
func (m *Metrics) inCall() {
	now := time.Now()
	due := m.due.Load()
	if now.UnixNano() < due || !m.due.CompareAndSwap(due, now.Add(m.opts.Interval).UnixNano()) {
		return
	}
	select {
	case m.reporting <- struct{}{}:
		m.write(now, &report{}) // it warns
		<-m.reporting
	default:
	}
}

// write makes a report. It needs the element of m.reporting.
func (m *Metrics) write(at time.Time, r *report) {
	groups := m.drain().groups()
	if m.emf != nil {
		lost, err := m.emf.write(groups, at)
		if err != nil {
			r.err = fmt.Errorf("cloudwatch: %d data points could not be written: %w", lost, err)
			m.lost(lost, err)
		}
	}
	if m.put != nil {
		r.sent, r.dropped = m.put.enqueue(groups, at)
	}
}

// drain returns what has happened since the last report.
func (m *Metrics) drain() *tally {
	sum := newTally()
	for i := range m.shards {
		s := &m.shards[i]
		s.mu.Lock()
		s.active, s.idle = s.idle, s.active
		s.mu.Unlock()
		s.idle.drain(sum)
	}
	return sum
}

// lock returns one of the shards, for the caller alone until it unlocks it.
func (m *Metrics) lock() *shard {
	s := &m.shards[rand.Uint32()&uint32(len(m.shards)-1)] //nolint:gosec // it spreads the load
	s.mu.Lock()
	return s
}
