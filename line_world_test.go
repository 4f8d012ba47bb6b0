package drawgate_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/internal/model"
	"github.com/drawgate/drawgate/store"
)

// How long a message takes: most are quick.
const (
	quickest = time.Millisecond
	slowest  = 200 * time.Millisecond
)

// holds is how many times as long as it works, on average, a holder asks to hold.
const holds = 4

var errLost = errors.New("no answer")

// lineWorld is a simulation of processes that wait for one bucket of one store, each with the
// limiter that ships. It runs in a bubble of synctest, and the store's clock is that of the bubble.
type lineWorld struct {
	t       *testing.T
	limits  []drawgate.Limit
	most    int64         // units of a take, at most
	work    time.Duration // how long a holder works, on average; 0: takes are plain
	callers int           // of a process, on average
	lost    float64       // share of messages
	deaf    float64       // share of announcements that are lost
	near    time.Duration // a message takes half of it to one and a half; 0: quickest to slowest

	records *model.Records
	began   time.Time
	running sync.WaitGroup // callers
	procs   []*lineProcess // of the goroutine that runs the simulation

	mu     sync.Mutex
	owners map[uint64]*lineProcess // guarded by mu: of the tickets
	open   map[store.Grant]int     // guarded by mu: positions in grants
	grants []unitGrant             // guarded by mu
	calls  int                     // guarded by mu
}

// unitGrant is what the store granted, by the store's clock in µs.
type unitGrant struct {
	at, end int64 // it counts from at; until end if it is held
	n       store.Amounts
}

// lineProcess is a process, and its way to the store.
type lineProcess struct {
	w      *lineWorld
	lim    *drawgate.Limiter
	steady bool               // its demand stays, its callers do not give up, and nothing happens to it
	kill   context.CancelFunc // ends its callers
	dead   atomic.Bool
	want   atomic.Int64 // so many of its callers are at work

	mu      sync.Mutex
	stopped time.Time                 // guarded by mu: it stands still until then
	chans   map[chan<- store.Key]bool // guarded by mu
	served  int64                     // guarded by mu: units
	longest time.Duration             // guarded by mu: that a take waited
}

func (w *lineWorld) delay() time.Duration {
	if w.near > 0 {
		return w.near/2 + rand.N(w.near)
	}
	x := rand.Float64()
	return quickest + time.Duration(x*x*x*float64(slowest-quickest))
}

// call sends a message to the store and waits for the answer. The store does it whatever becomes of
// the caller.
func (p *lineProcess) call(ctx context.Context, op string, do func() error) error {
	p.standStill()
	fail := func(err error) error { return &drawgate.StoreError{Store: "far", Op: op, Err: err} }
	switch {
	case p.dead.Load():
		return fail(errLost)
	case ctx.Err() != nil:
		return fail(ctx.Err())
	}
	answer := make(chan error, 1)
	go func() {
		time.Sleep(p.w.delay())
		if rand.Float64() < p.w.lost {
			return
		}
		err := do()
		if rand.Float64() < p.w.lost {
			return
		}
		time.Sleep(p.w.delay())
		answer <- err
	}()
	select {
	case err := <-answer:
		p.standStill()
		if p.dead.Load() {
			return fail(errLost)
		}
		return err
	case <-ctx.Done():
		p.standStill()
		return fail(ctx.Err())
	}
}

// standStill returns when the process runs.
func (p *lineProcess) standStill() {
	for !p.dead.Load() {
		p.mu.Lock()
		left := time.Until(p.stopped)
		p.mu.Unlock()
		if left <= 0 {
			return
		}
		time.Sleep(left)
	}
}

// Take implements store.Store.
func (p *lineProcess) Take(ctx context.Context, batch []store.Take, out []store.Verdict) error {
	sent, got := slices.Clone(batch), make([]store.Verdict, len(batch))
	for i := range sent {
		sent[i].Buckets = slices.Clone(sent[i].Buckets)
		if sent[i].ID != "" {
			sent[i].NotAfter = time.Now().Add(store.SendLife)
		}
	}
	err := p.call(ctx, "take", func() error { return p.w.take(p, sent, got) }) //nolint:contextcheck // a message goes on without its caller
	if err == nil {
		copy(out, got)
	}
	return err
}

// Settle implements store.Store.
func (p *lineProcess) Settle(ctx context.Context, batch []store.Settlement, out []store.Outcome) error {
	sent, got := slices.Clone(batch), make([]store.Outcome, len(batch))
	err := p.call(ctx, "settle", func() error { return p.w.settle(sent, got) }) //nolint:contextcheck // as above
	if err == nil {
		copy(out, got)
	}
	return err
}

var _ store.Liner = (*lineProcess)(nil)

func (*lineProcess) KeepsLine() bool { return true }

// Withdraw implements store.Liner.
func (p *lineProcess) Withdraw(ctx context.Context, number uint64, keys []store.Key) error {
	return p.call(ctx, "withdraw", func() error { return p.w.withdraw(number, keys) }) //nolint:contextcheck // a message goes on without its caller
}

// Peek implements store.Store.
func (p *lineProcess) Peek(ctx context.Context, b []store.BucketCost, priority int8, out []store.State) error {
	got := make([]store.State, len(b))
	err := p.call(ctx, "peek", func() error { return p.w.records.Peek(context.Background(), b, priority, got) }) //nolint:contextcheck // as above
	if err == nil {
		copy(out, got)
	}
	return err
}

// Close implements store.Store.
func (p *lineProcess) Close() error { return nil }

// Watch implements store.Watcher.
func (p *lineProcess) Watch(keys chan<- store.Key) (stop func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.chans[keys] = true
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.chans, keys)
	}
}

// hear passes an announcement on.
func (p *lineProcess) hear(k store.Key) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.chans {
		select {
		case c <- k:
		default:
		}
	}
}

// take is what the store does with takes.
func (w *lineWorld) take(p *lineProcess, batch []store.Take, out []store.Verdict) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.calls++
	err := w.records.Take(context.Background(), batch, out)
	for i := range batch {
		t, v := &batch[i], &out[i]
		if k := t.Ticket; k != nil {
			w.owners[k.Number] = p
			for j := range k.Next {
				w.owners[k.Next[j].Number] = p
			}
		}
		if err == nil && v.Allowed && !v.Replayed {
			if t.ID != "" {
				w.open[t.Grant] = len(w.grants)
			}
			w.grants = append(w.grants, unitGrant{max(v.Now, v.Start), v.End, t.Buckets[0].N})
		}
	}
	return err
}

// settle is what the store does with settlements.
func (w *lineWorld) settle(batch []store.Settlement, out []store.Outcome) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.calls++
	err := w.records.Settle(context.Background(), batch, out)
	for i := range batch {
		s := &batch[i]
		if at, ok := w.open[s.Grant]; ok && err == nil && out[i].Err == nil && !out[i].Gone {
			w.grants[at].end = time.Now().UnixMicro()
			delete(w.open, s.Grant)
			w.tellAll(&s.Buckets[0])
		}
	}
	return err
}

func (w *lineWorld) withdraw(number uint64, keys []store.Key) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.calls++
	err := w.records.Withdraw(context.Background(), number, keys)
	if line := w.records.Line(keys[0]); len(line.Tickets) > 0 {
		w.tell(keys[0], line.Tickets[0].Number)
	}
	return err
}

// tellAll lets those know who fit, each beside those before it, as Redis does. w.mu is held.
func (w *lineWorld) tellAll(b *store.BucketCost) {
	var out [1]store.State
	_ = w.records.Peek(context.Background(), []store.BucketCost{{Key: b.Key, Plan: b.Plan}}, 0, out[:])
	free := out[0].First.Limits[0].Remaining
	for i, x := range out[0].Line {
		if free -= x.N[0]; i > 0 && free < 0 {
			return
		}
		w.tell(b.Key, x.Number)
	}
}

// tell lets the process of a ticket know that units may have come free. w.mu is held.
func (w *lineWorld) tell(k store.Key, number uint64) {
	if p := w.owners[number]; p != nil && rand.Float64() >= w.deaf {
		time.AfterFunc(w.delay(), func() { p.hear(k) })
	}
}

// begin makes the store.
func (w *lineWorld) begin() {
	w.records = model.NewRecords(func() int64 { return time.Now().UnixMicro() }, false).InLine()
	w.owners, w.open = map[uint64]*lineProcess{}, map[store.Grant]int{}
	w.began = time.Now()
}

func (w *lineWorld) process() *lineProcess {
	return &lineProcess{w: w, chans: map[chan<- store.Key]bool{}}
}

// start adds a process.
func (w *lineWorld) start(steady bool) {
	ctx, kill := context.WithCancel(w.t.Context())
	p := w.process()
	p.steady, p.kill = steady, kill
	var err error
	if p.lim, err = drawgate.New(p, policy(w.limits...), nil); err != nil {
		w.t.Fatal(err)
	}
	w.procs = append(w.procs, p)
	p.want.Store(int64(w.callers))
	n := w.callers
	if !steady {
		n = 2 * w.callers
		p.move()
	}
	for i := range n {
		w.running.Go(func() { p.caller(ctx, int64(i)) })
	}
}

// move changes the demand of a process.
func (p *lineProcess) move() { p.want.Store(1 + rand.Int64N(2*int64(p.w.callers))) }

// die ends a process without any word to the store.
func (p *lineProcess) die() {
	p.dead.Store(true)
	p.kill()
	p.w.running.Go(func() { _ = p.lim.Close() })
}

// caller waits again and again.
func (p *lineProcess) caller(ctx context.Context, i int64) {
	time.Sleep(rand.N(time.Second))
	for ctx.Err() == nil {
		if i >= p.want.Load() {
			time.Sleep(rand.N(time.Second))
		} else if p.wait(ctx) != nil {
			time.Sleep(rand.N(time.Second / 5))
		}
	}
}

// wait waits once, and works if it holds what it was granted.
func (p *lineProcess) wait(life context.Context) error {
	ctx, w := life, p.w
	leaves := !p.steady && rand.IntN(5) == 0
	if leaves {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(life, rand.N(10*time.Second))
		defer cancel()
	}
	n, since := 1+rand.Int64N(w.most), time.Now()
	d, r, err := p.lim.Take(ctx, drawgate.Request{
		Buckets: []drawgate.Ask{{Key: "k", Costs: []drawgate.Cost{{N: n}}}},
		Wait:    true, Hold: drawgate.Hold{For: holds * w.work},
	})
	p.standStill()
	switch {
	case p.dead.Load():
		return errLost
	case err == nil:
		p.note(n, time.Since(since))
		if at := d.At().Add(d.Delay()); !d.Allowed || time.Now().Before(at) {
			w.t.Errorf("allowed %v, and %v too early", d.Allowed, time.Until(at))
		}
	default:
		p.note(0, time.Since(since))
		lost := errors.Is(err, drawgate.ErrStoreUnavailable)
		if left := leaves && errors.Is(err, context.DeadlineExceeded); life.Err() == nil && !lost && !left {
			w.t.Errorf("it waited for %v, and ended with %v", time.Since(since), err)
		}
	}
	if r != nil {
		time.Sleep(w.work/2 + rand.N(w.work))
		p.standStill()
		_ = r.Settle(life) // if that fails, its hold ends by itself
	}
	return err
}

// note notes that a take waited, and how much it was granted.
func (p *lineProcess) note(n int64, waited time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.served += n
	p.longest = max(p.longest, waited)
}

// run lets processes wait for some time. Half of them are steady. Something happens to one of the
// others after each part, or two.
func (w *lineWorld) run(procs int, lasts, part time.Duration) {
	w.begin()
	for i := range procs {
		w.start(i%2 == 0)
	}
	for i := 0; time.Since(w.began) < lasts; i++ {
		time.Sleep(min(rand.N(2*part), time.Until(w.began.Add(lasts))))
		w.happens(i)
	}
	for _, p := range w.procs {
		p.kill()
	}
	w.running.Wait()
	for _, p := range w.procs {
		if err := p.lim.Close(); err != nil {
			w.t.Error(err)
		}
	}
	time.Sleep(5 * time.Second) // messages under way: what is left then blocks the bubble
}

// happens does something to one process: one in ten times it dies, and another one comes; as often
// it stands still; otherwise its demand moves.
func (w *lineWorld) happens(i int) {
	at := rand.IntN(len(w.procs))
	p := w.procs[at]
	switch {
	case p.steady:
	case i%10 == 0:
		p.die()
		w.procs = slices.Delete(w.procs, at, at+1)
		w.start(false)
	case i%10 == 5:
		p.mu.Lock()
		p.stopped = time.Now().Add(rand.N(3 * time.Second))
		p.mu.Unlock()
	default:
		p.move()
	}
}
