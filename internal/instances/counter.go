package instances

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/drawgate/drawgate/store"
)

// Policy is the name of the policy with the bucket of slots. No configured policy can have it.
const Policy = "drawgate:instances"

// Options holds the optional settings of a Counter. The zero value is ready to use.
type Options struct {
	AtLeast int         // the least number of processes that is assumed
	InCalls bool        // the process may be stopped between calls: see [Counter.Call]
	Report  func(error) // called when there is no slot for this process, once until there is one; may be nil
}

// Counter holds a slot in a store. It is safe for concurrent use. It runs a goroutine, which Close
// ends.
type Counter struct {
	store  func() store.Store
	report func(error)
	plan   *store.Plan

	mu      sync.Mutex
	machine Machine       // guarded by mu
	running bool          // guarded by mu: an attempt is
	failed  bool          // guarded by mu: the last attempt failed
	ended   chan struct{} // guarded by mu: closed when the attempt that is running, or about to start, has ended

	// Only used by the goroutine, until done is closed.
	id      string // of the slot; "" before it was first requested
	grant   store.Grant
	open    bool // it was open at the last look
	anew    bool // it was opened since the others were last counted
	refused bool // there was none, and that was reported

	inCalls bool
	due     chan struct{} // holds a token when a call needs an attempt
	wake    chan struct{} // holds a token when the store is found to be unavailable
	stop    context.CancelFunc
	done    chan struct{}
}

// The time that the store has for an attempt, and for the cancellation when the process ends.
const (
	timeout      = 2 * time.Second
	closeTimeout = time.Second
)

// Start begins to count. current returns the current store; opts may be nil.
func Start(current func() store.Store, opts *Options) (*Counter, error) {
	// The limit is larger than [record.MaxOpen], so it never refuses.
	plan, err := store.Policy{Name: Policy, Limits: []store.Limit{{
		Name: "instances", Kind: store.Concurrency,
		Amount: 1_000_000,
	}}}.Compile()
	if err != nil {
		return nil, err
	}
	c := &Counter{
		store: current, plan: plan, ended: make(chan struct{}), due: make(chan struct{}, 1),
		wake: make(chan struct{}, 1), done: make(chan struct{}),
	}
	c.machine.Pace = Steady
	if opts != nil {
		c.machine.AtLeast, c.report, c.inCalls = opts.AtLeast, opts.Report, opts.InCalls
	}
	if c.inCalls {
		c.machine.Pace = InCalls
	}
	ctx, cancel := context.WithCancel(context.Background())
	c.stop = cancel
	go c.run(ctx)
	return c, nil
}

// Share returns the number of processes that a limit is divided by, and whether this process may
// admit its share if the store is unavailable.
func (c *Counter) Share() (instances int, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.machine.Instances(), c.machine.MayShare(time.Now())
}

// Unavailable says that the store was found to be unavailable. The counter then tries it soon.
func (c *Counter) Unavailable() {
	c.with((*Machine).Unavailable)
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// Call makes sure that a process that is stopped between calls is counted: if the slot has to be
// renewed, or is being renewed, it returns a channel that is closed when that is done. Otherwise it
// returns nil. The caller should wait before the process may be stopped again. Nobody waits for the
// attempts that follow a failed one until the slot is due again.
func (c *Counter) Call() <-chan struct{} {
	if !c.inCalls {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.machine.Due(time.Now()) {
		select {
		case c.due <- struct{}{}:
		default:
		}
		return c.ended
	}
	if c.running && !c.failed {
		return c.ended
	}
	return nil
}

// Close stops counting and gives the slot back, if the store answers.
func (c *Counter) Close() {
	c.stop()
	<-c.done
}

// run is the counter's goroutine. It ends with ctx.
func (c *Counter) run(ctx context.Context) {
	defer close(c.done)
	for ctx.Err() == nil {
		c.attempt(ctx)
		c.sleep(ctx)
	}
	c.leave(context.WithoutCancel(ctx))
}

// sleep waits for the next attempt. An attempt because the store was lost does not come sooner than
// others during an outage.
func (c *Counter) sleep(ctx context.Context) {
	pause := c.machine.Pace.Every
	if c.lastFailed() {
		pause = Retry
	}
	t := time.NewTimer(pause)
	defer t.Stop()
	select {
	case <-t.C:
	case <-c.due:
	case <-ctx.Done():
	case <-c.wake:
		soon := time.NewTimer(Retry)
		defer soon.Stop()
		select {
		case <-t.C:
		case <-soon.C:
		case <-c.due:
		case <-ctx.Done():
		}
	}
}

// attempt opens or renews the slot, and counts the others.
func (c *Counter) attempt(life context.Context) {
	ctx, cancel := context.WithTimeout(life, timeout)
	defer cancel()
	c.start()
	defer c.end()
	err := c.hold(ctx)
	var n int
	if err == nil {
		n, err = c.count(ctx)
	}
	if life.Err() != nil {
		return // that says nothing about the store
	}
	failed := err != nil && !errors.Is(err, errRefused)
	c.mu.Lock()
	c.failed = failed
	c.mu.Unlock()
	switch {
	case err == nil:
		c.with(func(m *Machine) { m.Counted(n, c.anew) })
		c.anew, c.refused = false, false
	case failed:
		c.with((*Machine).Unavailable)
	default:
		c.with((*Machine).Refused)
		if c.report != nil && !c.refused {
			c.report(err)
		}
		c.refused = true
	}
}

// start notes that an attempt starts, for all calls that wanted one.
func (c *Counter) start() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.machine.Tried(time.Now())
	c.running = true
	select {
	case <-c.due:
	default:
	}
}

// end tells the calls that wait for an attempt that it has ended.
func (c *Counter) end() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.running = false
	close(c.ended)
	c.ended = make(chan struct{})
}

func (c *Counter) lastFailed() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.failed
}

func (c *Counter) with(f func(m *Machine)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f(&c.machine)
}

// errRefused means that the store answered, and that there is no slot for this process.
var errRefused = errors.New("the store has no slot for this instance")

// hold renews the slot, or opens one.
func (c *Counter) hold(ctx context.Context) error {
	if c.open {
		gone, err := c.settle(ctx, store.OpRenew)
		if err != nil || !gone {
			return err
		}
		c.open, c.id = false, ""
	}
	if c.id == "" {
		c.grant = store.NewGrant()
		c.id = c.grant.String()
	}
	var out [1]store.Verdict
	t := store.Take{ID: c.id, Grant: c.grant, Buckets: c.bucket(1), Hold: Hold}
	if err := c.store().Take(ctx, []store.Take{t}, out[:]); err != nil {
		return err
	}
	switch d := &out[0]; {
	case errors.Is(d.Fail, store.ErrTooManyOpen):
		return fmt.Errorf("%w: %w", errRefused, d.Fail)
	case d.Fail == nil && !d.Allowed:
		return errRefused
	case d.Fail != nil:
		return d.Fail
	}
	c.open, c.anew = true, true
	return nil
}

// count returns how many slots are open.
func (c *Counter) count(ctx context.Context) (int, error) {
	var out [1]store.State
	if err := c.store().Peek(ctx, c.bucket(0), 0, out[:]); err != nil {
		return 0, err
	}
	return out[0].Open, out[0].Fail
}

// settle renews or cancels the slot. It reports whether the slot was no longer open.
func (c *Counter) settle(ctx context.Context, op store.Op) (gone bool, err error) {
	var out [1]store.Outcome
	st := store.Settlement{Op: op, ID: c.id, Grant: c.grant, Buckets: c.bucket(0), Hold: Hold}
	if op == store.OpCancel {
		st.Hold = 0
	}
	if err := c.store().Settle(ctx, []store.Settlement{st}, out[:]); err != nil {
		return false, err
	}
	return out[0].Gone, out[0].Err
}

func (c *Counter) bucket(n int64) []store.BucketCost {
	b := store.BucketCost{Key: store.Key{Policy: Policy, Name: "all"}, Plan: c.plan}
	b.N[0] = n
	return []store.BucketCost{b}
}

// leave gives the slot back. If the store did not answer last time, it is not asked: the slot ends
// by itself.
func (c *Counter) leave(ctx context.Context) {
	if c.id == "" || c.lastFailed() {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, closeTimeout)
	defer cancel()
	_, _ = c.settle(ctx, store.OpCancel)
}
