package guard

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/internal/record"
)

// teller knows of which buckets the store has yet to be told something, and who waits for that. One goroutine tells.
type teller struct {
	mu     sync.Mutex
	dirty  map[drawgate.Key]struct{} // guarded by mu: pages that owe
	wanted map[drawgate.Key]struct{} // guarded by mu: of these, those that somebody waits for
	round  chan struct{}             // guarded by mu: closed when the round that is about to begin, or under way, is over
}

// mostTold is the most buckets that are told in one round: enough to share a journey among, few enough that those who wait do not wait long.
const mostTold = 256

func (t *teller) init() {
	t.dirty, t.wanted, t.round = make(map[drawgate.Key]struct{}), make(map[drawgate.Key]struct{}), make(chan struct{})
}

// mark notes that a page owes.
func (t *teller) mark(k drawgate.Key) {
	t.mu.Lock()
	t.dirty[k] = struct{}{}
	t.mu.Unlock()
}

// clean notes that a page does not owe any more.
func (t *teller) clean(k drawgate.Key) {
	t.mu.Lock()
	delete(t.dirty, k)
	delete(t.wanted, k)
	t.mu.Unlock()
}

func (t *teller) owing() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.dirty)
}

// want asks for buckets to be told first, and returns what is closed at the end of a round.
func (t *teller) want(keys []drawgate.Key) <-chan struct{} {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, k := range keys {
		t.wanted[k] = struct{}{}
	}
	return t.round
}

// next returns the buckets of a round: those that somebody waits for first.
func (t *teller) next() (keys []drawgate.Key) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for k := range t.wanted {
		if len(keys) == mostTold {
			return keys
		}
		keys = append(keys, k)
		delete(t.wanted, k)
	}
	for k := range t.dirty {
		if len(keys) == mostTold {
			break
		}
		keys = append(keys, k)
	}
	return keys
}

// over ends a round.
func (t *teller) over() {
	t.mu.Lock()
	close(t.round)
	t.round = make(chan struct{})
	t.mu.Unlock()
}

// tellFirst waits until the store has been told what it has to know of the buckets. The error says why it was not: the store is away.
func (s *Store) tellFirst(ctx context.Context, keys []drawgate.Key) error {
	for {
		done := s.tell.want(keys)
		owing, fault := s.owing(keys)
		if len(owing) == 0 {
			return nil
		}
		if s.open.Load() {
			return s.away("charge")
		}
		if fault != nil {
			return fault
		}
		keys = owing
		s.nudge()
		select {
		case <-done:
		case <-s.quit:
			return drawgate.ErrClosed
		case <-ctx.Done():
			if errors.Is(ctx.Err(), context.Canceled) {
				return ctx.Err()
			}
			return &drawgate.StoreError{Store: "guard", Op: "charge", Err: ctx.Err()}
		}
	}
}

// owing returns those of the buckets that owe, and why the store could not be told of one of them.
func (s *Store) owing(keys []drawgate.Key) (owing []drawgate.Key, fault error) {
	for _, k := range keys {
		sh := &s.book.parts[s.book.shard(k)]
		sh.mu.Lock()
		if p := sh.pages[k]; p != nil && p.owes() {
			owing = append(owing, k)
			if p.fault != nil {
				fault = p.fault
			}
		}
		sh.mu.Unlock()
	}
	return owing, fault
}

// dues is what the store is told in one round.
type dues struct {
	now    instant
	keys   []drawgate.Key
	bills  []due
	ends   []*held
	opens  []*held
	failed map[drawgate.Key]error // by bucket: why it could not be told
}

// due is a bill on its way.
type due struct {
	key  drawgate.Key
	bill bill             // as it stands if it cannot be delivered
	n    drawgate.Amounts // what still counts of it
}

// tellRound tells the store about some buckets. It reports whether there may be more to tell at once.
func (s *Store) tellRound() (more bool) {
	keys := s.tell.next()
	if len(keys) == 0 {
		return false
	}
	d := &dues{now: s.clock.now(), failed: map[drawgate.Key]error{}}
	s.gather(d, keys)
	err := s.tellEnds(d)
	if err == nil {
		err = s.tellOpens(d)
	}
	if err == nil {
		err = s.tellBills(d)
	}
	s.putBack(d, err)
	s.tell.over()
	return err == nil && len(d.failed) == 0
}

// gather collects what the store has to be told of the buckets.
func (s *Store) gather(d *dues, keys []drawgate.Key) {
	seen := map[*held]bool{}
	for _, k := range keys {
		sh := &s.book.parts[s.book.shard(k)]
		sh.mu.Lock()
		p := sh.pages[k]
		if p == nil || !p.owes() {
			s.tell.clean(k)
			sh.mu.Unlock()
			continue
		}
		d.keys = append(d.keys, k)
		p.telled = true
		for _, b := range p.bills {
			d.bills = append(d.bills, due{k, b, p.counting(&b, d.now.at)})
		}
		p.bills = nil
		for _, h := range p.owed {
			if !seen[h] {
				seen[h] = true
				s.claim(d, h)
			}
		}
		sh.mu.Unlock()
	}
}

// claim takes one reservation or settlement into the round.
func (s *Store) claim(d *dues, h *held) {
	s.held.mu.Lock()
	defer s.held.mu.Unlock()
	if h.busy != nil {
		return
	}
	switch h.stage {
	case ending:
		d.ends = append(d.ends, h)
	case here:
		d.opens = append(d.opens, h)
	default:
		return
	}
	h.busy = make(chan struct{})
}

// counting returns what still counts of a bill: no more than what is used here. Units that have aged need not be told.
func (p *page) counting(b *bill, now int64) (n drawgate.Amounts) {
	t := b.terms
	p.rec.Advance(t.wide, now)
	for j, at := range t.at {
		st := stateOf(&p.rec, t.wide[j].ID)
		if st == nil {
			continue
		}
		used := st.Used
		if st.Kind == record.Bucket {
			used = record.CeilDiv(used, st.Scale)
		}
		n[at] = min(b.n[at], max(used, st.Next))
	}
	return n
}

// settleAll has the store carry out settlements.
func (s *Store) settleAll(batch []drawgate.Settlement) ([]drawgate.Outcome, error) {
	if len(batch) == 0 {
		return nil, nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), s.timeout)
	defer cancel()
	out := make([]drawgate.Outcome, len(batch))
	answered := false
	err := s.attempt(ctx, ctx, batch[0].Op.String(), true, func(ctx context.Context) error {
		if err := s.store().Settle(ctx, batch, out); err != nil {
			return err
		}
		answered = true
		return unsettledWide(out)
	})
	if answered {
		err = nil // each outcome says it for itself
	}
	return out, err
}

// unsettledWide returns the first failure of a settlement that is not of its buckets only.
func unsettledWide(out []drawgate.Outcome) error {
	for i := range out {
		if out[i].Err != nil && wide(out[i].Err) {
			return out[i].Err
		}
	}
	return nil
}

// tellEnds delivers settlements: they give back, so they go first.
func (s *Store) tellEnds(d *dues) error {
	if len(d.ends) == 0 {
		return nil
	}
	batch := make([]drawgate.Settlement, len(d.ends))
	s.held.mu.Lock()
	for i, h := range d.ends {
		batch[i] = h.last
	}
	s.held.mu.Unlock()
	out, err := s.settleAll(batch)
	if err != nil {
		return err
	}
	for i, h := range d.ends {
		if o := &out[i]; isAway(o.Err) {
			d.fail(h, o.Err)
		} else {
			s.ended(d, h, o)
		}
	}
	return nil
}

// fail notes that a bucket could not be told.
func (d *dues) fail(h *held, err error) {
	for k := range h.parts {
		d.failed[h.parts[k].key] = err
	}
}

// ended takes note of a settlement that was delivered.
func (s *Store) ended(d *dues, h *held, o *drawgate.Outcome) {
	s.held.mu.Lock()
	was, last, over := h.was, h.last, h.end <= d.now.at
	s.held.drop(h)
	s.held.mu.Unlock()
	if o.Err != nil {
		s.news.dropped(o.Err)
	}
	if last.Op == drawgate.OpCharge {
		s.news.charged(last.Buckets)
	}
	for k := range h.parts {
		pt := &h.parts[k]
		var n drawgate.Amounts
		switch {
		case !o.Gone || last.Op == drawgate.OpCharge:
		case was == here: // the store never had it
			n = usedOf(&last, k, &h.granted[k])
		case over: // it counts as granted: what was used beyond that is missing
			n = usedOf(&last, k, &h.granted[k])
			for j := range n {
				n[j] = max(0, n[j]-h.granted[k][j])
			}
		}
		s.closeHeld(d, h, pt, &n, true)
	}
}

// usedOf returns what a settlement says of bucket k: what was used, or granted where it says nothing.
func usedOf(st *drawgate.Settlement, k int, granted *drawgate.Amounts) (n drawgate.Amounts) {
	if st.Op == drawgate.OpCancel {
		return n
	}
	for j := range n {
		if n[j] = st.Buckets[k].N[j]; n[j] == drawgate.Unnamed {
			n[j] = granted[j]
		}
	}
	return n
}

// closeHeld takes a reservation off one of its pages, and has n units charged: all of them, or only those that still count here.
func (s *Store) closeHeld(d *dues, h *held, pt *part, n *drawgate.Amounts, aged bool) {
	sh := &s.book.parts[pt.shard]
	sh.mu.Lock()
	defer sh.mu.Unlock()
	p := sh.pages[pt.key]
	if p == nil {
		p = &page{}
		sh.pages[pt.key] = p
	}
	p.settle(h)
	if *n == (drawgate.Amounts{}) {
		return
	}
	b := bill{pt.terms, *n}
	switch {
	case !p.telled: // another bucket of this round's: it is told of in one of its own
		p.charge(pt.terms, n)
		s.tell.mark(pt.key)
	case aged:
		d.bills = append(d.bills, due{pt.key, b, p.counting(&b, d.now.at)})
	default:
		d.bills = append(d.bills, due{pt.key, b, *n})
	}
}

// tellOpens makes reservations that were given here the store's, whatever it has admitted to others meanwhile. One that it has already, because only its
// answer was lost, is answered again.
func (s *Store) tellOpens(d *dues) error {
	var opens []*held
	for _, h := range d.opens {
		if s.over(d, h) {
			s.charge(d, h, h.granted, counted, true)
		} else {
			opens = append(opens, h)
		}
	}
	if len(opens) == 0 {
		return nil
	}
	batch, out := make([]drawgate.Take, len(opens)), make([]drawgate.Decision, len(opens))
	for i, h := range opens {
		batch[i] = h.take
		batch[i].Priority = drawgate.MaxPriority
		batch[i].Buckets = slices.Clone(h.take.Buckets)
		for k := range batch[i].Buckets {
			batch[i].Buckets[k].Plan = h.parts[k].terms.force()
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), s.timeout)
	defer cancel()
	s.held.mu.Lock()
	for _, h := range opens {
		h.sent = true
	}
	s.held.mu.Unlock()
	answered := false
	err := s.attempt(ctx, ctx, "take", true, func(ctx context.Context) error {
		if err := s.store().Take(ctx, batch, out); err != nil {
			return err
		}
		answered = true
		return failedWide(out)
	})
	if err != nil && !answered {
		return err
	}
	return s.opened(d, opens, out)
}

func (s *Store) over(d *dues, h *held) bool {
	s.held.mu.Lock()
	defer s.held.mu.Unlock()
	return h.end <= d.now.at
}

// charge has the store charged for a reservation, for all of n or for what still counts of it, and leaves it at a stage.
func (s *Store) charge(d *dues, h *held, n []drawgate.Amounts, at stage, aged bool) {
	s.held.mu.Lock()
	h.stage = at
	s.held.mu.Unlock()
	for k := range h.parts {
		s.closeHeld(d, h, &h.parts[k], &n[k], aged)
	}
}

// opened takes note of what became of reservations that were given here.
func (s *Store) opened(d *dues, opens []*held, out []drawgate.Decision) error {
	if err := s.prolong(d, opens, out); err != nil {
		return err
	}
	for i, h := range opens {
		switch o := &out[i]; {
		case isAway(o.Fail):
			d.fail(h, o.Fail)
		case !o.Allowed: // the id is another's there
			s.charge(d, h, h.granted, counted, false)
		default:
			missing := make([]drawgate.Amounts, len(h.parts)) // of a lease that the store grants in part only
			for k := range missing {
				got := o.Granted(k)
				for j := range got {
					missing[k][j] = max(0, h.granted[k][j]-got[j])
				}
			}
			s.charge(d, h, missing, inStore, false)
		}
	}
	return nil
}

// prolong renews reservations that were renewed here.
func (s *Store) prolong(d *dues, opens []*held, out []drawgate.Decision) error {
	var batch []drawgate.Settlement
	var of []int
	s.held.mu.Lock()
	for i, h := range opens {
		if o := &out[i]; o.Allowed {
			if o.HoldEnd().UnixMicro() >= h.end {
				continue
			}
			hold := time.Duration(h.end-d.now.at) * time.Microsecond
			batch = append(batch, drawgate.Settlement{Op: drawgate.OpRenew, ID: h.take.ID, Buckets: h.take.Buckets, Hold: hold})
			of = append(of, i)
		}
	}
	s.held.mu.Unlock()
	answers, err := s.settleAll(batch)
	for k := range answers {
		if err == nil && isAway(answers[k].Err) { // it is asked for again, and answered again
			out[of[k]] = drawgate.Decision{Fail: answers[k].Err}
		}
	}
	return err
}

// tellBills charges.
func (s *Store) tellBills(d *dues) error {
	var batch []drawgate.Settlement
	var of []int
	for i := range d.bills {
		if b := &d.bills[i]; b.n != (drawgate.Amounts{}) {
			cost := drawgate.BucketCost{Key: b.key, Plan: b.bill.terms.plan, N: b.n}
			batch = append(batch, drawgate.Settlement{Op: drawgate.OpCharge, Buckets: []drawgate.BucketCost{cost}, At: time.UnixMicro(d.now.at)})
			of = append(of, i)
		}
	}
	out, err := s.settleAll(batch)
	if err != nil {
		return err
	}
	for k, i := range of {
		b := &d.bills[i]
		switch o := &out[k]; {
		case isAway(o.Err):
			d.failed[b.key] = o.Err
			continue
		case o.Err != nil:
			s.news.dropped(o.Err)
		default:
			s.news.charged(batch[k].Buckets)
		}
		b.bill.n = drawgate.Amounts{}
	}
	for i := range d.bills {
		if b := &d.bills[i]; b.n == (drawgate.Amounts{}) {
			b.bill.n = drawgate.Amounts{} // all of it has aged
		}
	}
	return nil
}

// putBack ends a round: what was not delivered is still owed. err says that the store went away in the middle of it.
func (s *Store) putBack(d *dues, err error) {
	for i := range d.bills {
		b := &d.bills[i]
		if b.bill.n == (drawgate.Amounts{}) {
			continue
		}
		sh := &s.book.parts[s.book.shard(b.key)]
		sh.mu.Lock()
		p := sh.pages[b.key]
		if p == nil {
			p = &page{}
			sh.pages[b.key] = p
		}
		p.charge(b.bill.terms, &b.bill.n)
		s.tell.mark(b.key)
		sh.mu.Unlock()
	}
	s.held.mu.Lock()
	for _, hs := range [...][]*held{d.ends, d.opens} {
		for _, h := range hs {
			close(h.busy)
			h.busy = nil
		}
	}
	s.held.mu.Unlock()
	for _, k := range d.keys {
		sh := &s.book.parts[s.book.shard(k)]
		sh.mu.Lock()
		if p := sh.pages[k]; p != nil {
			p.telled = false
			if p.fault = d.failed[k]; !p.owes() {
				s.tell.clean(k)
				if p.blank() {
					delete(sh.pages, k)
				}
			}
		}
		sh.mu.Unlock()
	}
	if err == nil && len(d.failed) > 0 {
		s.news.untold(d.failed)
	}
}
