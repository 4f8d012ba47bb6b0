package dynamostore

import (
	"context"
	"slices"

	"github.com/drawgate/drawgate/internal/record"
	"github.com/drawgate/drawgate/store"
)

// Take implements [store.Store].
func (s *Store) Take(ctx context.Context, batch []store.Take, out []store.Verdict) error {
	if err := s.begin(ctx, "take"); err != nil {
		return err
	}
	defer s.calls.Done()
	r := run{s: s}
	for i := range batch {
		t := &batch[i]
		out[i] = store.Verdict{}
		if err := t.Check(); err != nil {
			out[i].Fail = err
			continue
		}
		if len(t.Buckets) > 1 {
			r.wait()
			if out[i] = s.takeMany(ctx, t); out[i].Fail != nil {
				out[i].Fail = refusal("take", out[i].Fail)
			}
			continue
		}
		j := s.takeJob(ctx, t, part{content: content(t)})
		r.add(&t.Buckets[0], j, func(err error) {
			if err != nil {
				out[i] = store.Verdict{Fail: failure("take", err)}
				return
			}
			out[i] = j.verdict.decision
		})
	}
	r.wait()
	return nil
}

// refusal returns what a decision failed with: a failure of the store, unless it is the answer.
func refusal(op string, err error) error {
	if answered(err) {
		return err
	}
	return failure(op, err)
}

func content(t *store.Take) uint64 {
	if t.ID == "" {
		return 0
	}
	return t.Fingerprint()
}

// run is a part of a batch whose elements have one bucket each. Those of one bucket are decided
// together and in order; different buckets at the same time.
type run struct {
	s     *Store
	todo  []todo
	lines map[string][]*job
}

type todo struct {
	job  *job
	then func(err error) // takes the answer; with an error the job may not be done
}

func (r *run) add(b *store.BucketCost, j *job, then func(error)) {
	key, parts := r.s.name(b)
	if r.lines == nil {
		r.lines = map[string][]*job{}
	}
	r.lines[key+"\x00"+parts] = append(r.lines[key+"\x00"+parts], j)
	r.todo = append(r.todo, todo{j, then})
	j.key, j.parts = key, parts
}

// wait carries out what was added.
func (r *run) wait() {
	for _, jobs := range r.lines {
		r.s.submit(jobs[0].key, jobs[0].parts, jobs...)
	}
	for _, t := range r.todo {
		t.then(r.s.wait(t.job))
	}
	r.lines, r.todo = nil, nil
}

// part says what a take of one bucket is a part of.
type part struct {
	content uint64 // of the whole take
	from    int64  // the units count from then, in Unix µs, or later; 0: from now
	plain   bool   // the whole take is plain: see plainHold
}

// takeJob returns the job of a take of one bucket.
func (s *Store) takeJob(ctx context.Context, t *store.Take, p part) *job {
	c := *t
	c.Buckets = slices.Clone(t.Buckets)
	plan := c.Buckets[0].Plan
	return &job{
		op: "take", ctx: ctx, plan: plan, holds: c.Hold > 0, id: c.ID, dated: true, done: make(chan struct{}),
		decide: func(rec *record.Record, at instant) verdict {
			b := c
			b.Buckets = []store.BucketCost{c.Buckets[0]}
			s.blur(&b, at, p.plain)
			return decide(&b, p, rec, at)
		},
	}
}

// blur makes a take fit for an inexact clock: its units count longer by what the clock may be
// wrong, and its hold is kept longer than its holder is told.
func (s *Store) blur(t *store.Take, at instant, plain bool) {
	for i := range t.Buckets {
		t.Buckets[i].Plan = s.variant(planKey{t.Buckets[i].Plan, at.blur, plain})
	}
}

// decide decides a take of one bucket.
func decide(t *store.Take, p part, rec *record.Record, at instant) verdict {
	b, now := &t.Buckets[0], at.early
	hold := t.Hold + microseconds(at.blur) // as the item keeps it
	persist := rec.MustPersist(store.Internal.Specs(b.Plan, false), max(now, rec.Last))
	var since int64 // when the units of a take that is open already were taken
	if o := rec.Open[t.ID]; o != nil {
		since = o.At
	}
	d := store.Internal.DecidePart(t, p.content, []*record.Record{rec}, false, p.from, now)
	taken := d.Allowed && !d.Replayed && (t.Hold > 0 || b.N != store.Amounts{})
	again := d.Replayed && rec.Open[t.ID].At != since
	v := verdict{decision: d, write: persist || taken || again}
	if !taken || persist || d.Delay() > 0 {
		return v
	}
	v.effect, v.adds = commuting, b.N
	if t.Lease {
		v.adds = d.Granted(0)
	}
	for i := range b.Plan.Policy().Limits {
		v.left[i] = d.First.Limits[i].Remaining
	}
	if hold > longestHold { // others do not expect that the item must be kept so long
		v.effect = disturbing
	}
	if !t.Lease && !p.plain && hold <= longestHold {
		v.op = &op{
			kind: opTake, id: t.ID, grant: uint64(t.Grant), content: p.content, hold: hold.Microseconds(),
			n: record.Amounts(b.N),
		}
	}
	return v
}

// Settle implements [store.Store].
func (s *Store) Settle(ctx context.Context, batch []store.Settlement, out []store.Outcome) error {
	if err := s.begin(ctx, "settle"); err != nil {
		return err
	}
	defer s.calls.Done()
	r := run{s: s}
	for i := range batch {
		t := &batch[i]
		out[i] = store.Outcome{}
		if err := t.Check(); err != nil {
			out[i].Err = err
			continue
		}
		if len(t.Buckets) > 1 {
			r.wait()
			out[i] = s.settleMany(ctx, t)
			continue
		}
		j := s.settleJob(ctx, t, 0)
		r.add(&t.Buckets[0], j, func(err error) {
			if err != nil {
				out[i] = store.Outcome{Err: failure("settle", err)}
				return
			}
			out[i] = j.verdict.outcome
		})
	}
	r.wait()
	return nil
}

// settleJob returns the job of a settlement in its bucket number i.
func (s *Store) settleJob(ctx context.Context, t *store.Settlement, i int) *job {
	c := *t
	c.Buckets = []store.BucketCost{t.Buckets[i]}
	plan := c.Buckets[0].Plan
	return &job{
		op: t.Op.String(), ctx: ctx, plan: plan, done: make(chan struct{}),
		decide: func(rec *record.Record, at instant) verdict {
			b := c
			b.Buckets = []store.BucketCost{c.Buckets[0]}
			b.Buckets[0].Plan = s.variant(planKey{plan, at.blur, false})
			return apply(&b, rec, at.early)
		},
	}
}

// apply carries out a settlement of one bucket.
func apply(t *store.Settlement, rec *record.Record, now int64) (v verdict) {
	b := &t.Buckets[0]
	at := max(now, rec.Last)
	persist := rec.MustPersist(store.Internal.Specs(b.Plan, false), at)
	o := rec.Open[t.ID]
	open := o != nil && o.Grant == uint64(t.Grant) && o.End > at
	n, credit := credited(t, o)
	credit = credit && open
	paused := rec.Pause
	v.outcome = store.Internal.Apply(t, []*record.Record{rec}, false, now)
	v.effect = disturbing
	switch t.Op {
	case store.OpCharge:
		v.write = v.outcome.Err == nil && b.N != store.Amounts{}
	case store.OpRefund:
		v.write = v.outcome.Back != nil
	case store.OpPause:
		v.write = true
	case store.OpUnpause:
		v.write = paused != nil && rec.Pause == nil
	case store.OpSettle, store.OpCancel:
		v.write = open
		if credit {
			v.effect = commuting
			v.op = &op{kind: opSettle, id: t.ID, grant: uint64(t.Grant), n: n}
		}
		if credit && t.Op == store.OpCancel {
			v.op.kind, v.op.n = opCancel, record.Amounts{}
		}
	default: // a hold that lasts longer takes from those who counted on its end
		v.write, v.bound = open, true
		specs := store.Internal.Specs(b.Plan, false)
		for i := range specs {
			u := rec.Usage(&specs[i], store.MaxPriority)
			v.left[i] = max(0, u.Max-u.Used)
		}
	}
	if open {
		v.open = token(t.ID)
	}
	if persist || v.outcome.Corrected != nil { // that has no token, which makes it happen once
		v.write, v.effect, v.op = true, exclusive, nil
	}
	return v
}

// credited returns what a settlement or cancellation says of the limits of a reservation, and
// whether it takes nothing more of any of them.
func credited(t *store.Settlement, o *record.Open) (n record.Amounts, ok bool) {
	if o == nil || t.Op == store.OpCancel {
		return n, true
	}
	b := &t.Buckets[0]
	specs := store.Internal.Specs(b.Plan, false)
	for j := range specs {
		held := int64(0) // of a limit of which nothing is held any use is more
		for _, p := range o.Parts {
			if p.Limit == specs[j].ID {
				held, n[j] = p.N, b.N[j]
			}
		}
		if b.N[j] > held {
			return n, false
		}
	}
	return n, true
}
