package storetest

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/store"
)

// Scripts plays n random scripts on the store of h and on a reference, and compares all answers.
// The clocks of the two stores need not agree: a script starts on a Monday at midnight, and answers
// are compared as times since then.
//
// A script with different answers is shortened before it is shown.
func Scripts(t *testing.T, h, reference Harness, n int) {
	t.Helper()
	for seed := range uint64(n) {
		sc := newScript(seed)
		sc.free = h.Keeps && reference.Keeps
		if sc.differs(t, h, reference) == "" {
			continue
		}
		for size := len(sc.steps) / 2; size > 0; size /= 2 {
			for i := 0; i+size <= len(sc.steps); {
				shorter := &script{
					plans: sc.plans, steps: slices.Delete(slices.Clone(sc.steps), i, i+size),
					offset: sc.offset, free: sc.free,
				}
				if shorter.differs(t, h, reference) != "" {
					sc = shorter
				} else {
					i += size
				}
			}
		}
		t.Fatalf("seed %d:\n%s", seed, sc.differs(t, h, reference))
	}
}

// script is a sequence of operations on a few buckets, in some versions of their policy.
type script struct {
	plans  [versions]*store.Plan
	steps  []step
	offset time.Duration // from Monday's midnight
	free   bool          // versions alternate freely: see player.change
}

const versions = 3

// step is one operation, or a batch of one kind. Time passes before it.
type step struct {
	wait        time.Duration
	retry       bool          // wait for the last retry-after as well
	early       time.Duration // minus this
	takes       []store.Take
	settlements []store.Settlement
	// OpCharge: from now; OpPause: from now, unless it has a duration; OpUnpause: see player.paused
	at       time.Duration
	notAfter time.Duration // for takes with an ID: from now; 0: no bound
	peek     []store.BucketCost
	priority int8
	reset    []store.Key
}

// maker generates a script.
type maker struct {
	*rand.Rand
	sc *script
}

func newScript(seed uint64) *script {
	m := &maker{Rand: rand.New(rand.NewPCG(seed, 17)), sc: &script{}}
	for !m.plans() { // repeats for example if a headroom leaves nothing
		continue
	}
	m.sc.offset = time.Duration(m.Int64N(int64(50 * time.Hour))).Truncate(tick)
	for range 25 + m.IntN(40) {
		m.sc.steps = append(m.sc.steps, m.step())
	}
	return m.sc
}

// plans generates a policy and its versions, and reports whether all of them are valid.
func (m *maker) plans() bool {
	p := m.policy()
	for i := range m.sc.plans {
		plan, err := p.Compile()
		if err != nil {
			return false
		}
		m.sc.plans[i] = plan.Plan
		p = m.version(p)
	}
	return true
}

func pick[T any](m *maker, choices ...T) T { return choices[m.IntN(len(choices))] }

func (m *maker) policy() drawgate.Policy {
	p := drawgate.Policy{Name: "script"}
	for i := range 1 + m.IntN(4) {
		p.Limits = append(p.Limits, m.limit(fmt.Sprint("limit", i)))
	}
	return p
}

func (m *maker) limit(name string) drawgate.Limit {
	l := pick(m,
		leaky(m.amount(), pick(m, time.Second, 7*time.Second, time.Minute), 0),
		leaky(m.amount(), pick(m, 10*time.Second, time.Hour), m.amount()),
		rolling(m.amount(), pick(m, 5*time.Second, time.Minute, time.Hour)),
		joined(m.amount(), pick(m, time.Minute, 10*time.Minute), pick(m, 100, 128, 1000)),
		calendar(m.amount(), pick(m, drawgate.Minute, drawgate.Hour, drawgate.Day, drawgate.Week),
			pick(m, "", "UTC", "Asia/Kolkata")),
		slots(m.amount()),
	)
	l.Name, l.Unit = name, pick(m, "", "", "tokens")
	m.vary(&l)
	return l
}

func (m *maker) amount() int64 { return pick(m, 1+m.Int64N(4), 5+m.Int64N(20), 100+m.Int64N(1000)) }

// vary changes what is not part of a limit's identity.
func (m *maker) vary(l *drawgate.Limit) {
	l.Charge = pick(m, drawgate.ChargeDefault, drawgate.ChargeStart, drawgate.ChargeEnd)
	l.Margin, l.Headroom, l.ReservedByPriority = 0, drawgate.Share{}, nil
	if m.IntN(3) == 0 && l.Kind != drawgate.Concurrency {
		l.Margin = pick(m, 50*time.Millisecond, 2*time.Second)
	}
	if m.IntN(4) == 0 {
		l.Headroom = pick(m, drawgate.Share{Units: 1}, drawgate.Share{Percent: 12.5})
	}
	if m.IntN(4) == 0 {
		l.ReservedByPriority = map[int]drawgate.Share{5: {Percent: 10}}
	}
}

// version changes a policy as its next version might.
func (m *maker) version(p drawgate.Policy) drawgate.Policy {
	p.Limits = slices.Clone(p.Limits)
	for i := range p.Limits {
		l := &p.Limits[i]
		switch m.IntN(6) {
		case 0:
			m.vary(l)
		case 1, 2, 3:
			l.Amount = m.amount()
		case 4:
			if l.Window > 0 {
				l.Window *= 2 // another limit
			}
		}
	}
	m.Shuffle(len(p.Limits), func(i, j int) { p.Limits[i], p.Limits[j] = p.Limits[j], p.Limits[i] })
	return p
}

func (m *maker) step() step {
	s := step{
		wait: pick(m, 0, 0, tick, 137*time.Millisecond, time.Second-tick, 3700*time.Millisecond, 11*time.Second,
			time.Minute, 9*time.Minute, 25*time.Hour),
	}
	if s.retry = m.IntN(4) == 0; s.retry {
		s.wait, s.early = 0, pick(m, 0, tick)
	}
	if m.IntN(2) == 0 {
		s.wait = 0
	}
	batch := pick(m, 1, 1, 3)
	switch kind := m.IntN(20); {
	case kind < 11:
		for range batch {
			s.takes = append(s.takes, m.take())
		}
		s.notAfter = pick(m, 0, 0, 0, -tick, tick)
	case kind < 17:
		for range batch {
			s.settlements = append(s.settlements, m.settlement())
		}
		s.at = pick(m, 0, -time.Second, -time.Hour, -25*time.Hour, time.Minute)
	case kind < 19:
		s.peek, s.priority = m.buckets(m.IntN(4), m.IntN(versions), 9), int8(m.IntN(10))
	default:
		s.reset = []store.Key{m.key(m.IntN(3))}
	}
	return s
}

func (m *maker) key(k int) store.Key {
	return store.Key{Tenant: "t", Policy: "script", Name: fmt.Sprint("key", k)}
}

// buckets returns one or two buckets under a version of the policy: sets 0, 1 and 2 are one bucket
// each, set 3 is two.
func (m *maker) buckets(set, version int, priority int8) (bs []store.BucketCost) {
	for k := range 3 {
		if k == set || set == 3 && k < 2 {
			b := store.BucketCost{Key: m.key(k), Plan: m.sc.plans[version]}
			for i, s := range store.Internal.Specs(b.Plan, false) {
				if b.N[i] = pick(m, 0, 1, 1, 2, s.Effective[9]/3, s.Effective[9]); !s.Fits(b.N[i], priority) {
					b.N[i] = 0 // a limiter would not send it
				}
			}
			bs = append(bs, b)
		}
	}
	return bs
}

func (m *maker) take() store.Take {
	set, version := m.IntN(4), m.IntN(versions)
	t := store.Take{Priority: pick[int8](m, 0, 0, 5, 9)}
	t.Buckets = m.buckets(set, version, t.Priority)
	if m.IntN(2) == 0 { // an ID belongs to a set of buckets
		t.ID, t.Hold = fmt.Sprintf("id%d-%d", set, m.IntN(3)),
			pick(m, 200*time.Millisecond, 10*time.Second, 2*time.Minute, 3*time.Hour)
		t.Grant = store.Grant(1 + m.IntN(2))
		t.Lease, t.Given = m.IntN(3) == 0, m.IntN(8) == 0
	}
	if m.IntN(3) == 0 {
		t.Ahead = pick(m, tick, 100*time.Millisecond, 7*time.Second, 2*time.Minute, 30*time.Hour)
	}
	for k := range t.Buckets {
		for i, l := range t.Buckets[k].Plan.Policy().Limits {
			if l.Kind == drawgate.Concurrency && (t.ID == "" || t.Lease) {
				t.Buckets[k].N[i] = 0
			}
		}
	}
	return t
}

func (m *maker) settlement() store.Settlement {
	set, version := m.IntN(4), m.IntN(versions)
	s := store.Settlement{
		Op:      pick(m, store.OpSettle, store.OpSettle, store.OpCancel, store.OpRenew, store.OpCharge, store.OpRefund),
		ID:      fmt.Sprintf("id%d-%d", set, m.IntN(3)),
		Grant:   store.Grant(1 + m.IntN(2)),
		Buckets: m.buckets(set, version, 9), Hold: pick(m, time.Second, time.Minute),
	}
	switch m.IntN(12) {
	case 0:
		s.Op, s.Reason, s.Hold = store.OpPause, pick(m, "", "the provider said 429"),
			pick(m, 0, tick, 3*time.Second, time.Minute)
	case 1: // of the pause that was answered last
		s.Op, s.Hold = store.OpUnpause, 0
	}
	for k := range s.Buckets {
		for i := range s.Buckets[k].Plan.Policy().Limits {
			if s.Op == store.OpSettle && m.IntN(4) == 0 {
				s.Buckets[k].N[i] = store.KeepEstimate
			}
		}
	}
	return s
}

// differs plays the script on both stores, and describes where their answers differ.
func (sc *script) differs(t *testing.T, h, reference Harness) string {
	t.Helper()
	got, want := sc.play(t, h), sc.play(t, reference)
	for i := range want {
		if got[i] == want[i] {
			continue
		}
		var b strings.Builder
		for v, p := range sc.plans {
			fmt.Fprintf(&b, "version %d:\n", v)
			for _, l := range p.Policy().Limits {
				fmt.Fprintf(&b, "  %+v\n", l)
			}
		}
		for k := range i + 1 {
			if k < len(sc.steps) {
				fmt.Fprintf(&b, "step %d: %s\n", k, sc.describe(&sc.steps[k]))
			}
			fmt.Fprintf(&b, "   got: %s\n", got[k])
		}
		fmt.Fprintf(&b, "  want: %s\n", want[i])
		return b.String()
	}
	return ""
}

func (sc *script) describe(s *step) string {
	var b strings.Builder
	fmt.Fprintf(&b, "wait %v", s.wait)
	if s.retry {
		fmt.Fprintf(&b, ", for the retry-after less %v", s.early)
	}
	costs := func(bs []store.BucketCost) {
		for _, c := range bs {
			v := slices.Index(sc.plans[:], c.Plan)
			fmt.Fprintf(&b, " %s v%d %v", c.Key.Name, v, c.N[:len(c.Plan.Policy().Limits)])
		}
	}
	for _, t := range s.takes {
		fmt.Fprintf(&b, "; take %q grant %d hold %v lease %v ahead %v not after %v priority %d:", t.ID, t.Grant, t.Hold,
			t.Lease, t.Ahead, s.notAfter, t.Priority)
		costs(t.Buckets)
	}
	for _, st := range s.settlements {
		fmt.Fprintf(&b, "; %v %q grant %d hold %v at %v:", st.Op, st.ID, st.Grant, st.Hold, s.at)
		costs(st.Buckets)
	}
	if s.peek != nil {
		fmt.Fprintf(&b, "; peek at priority %d:", s.priority)
		costs(s.peek)
	}
	for _, k := range s.reset {
		fmt.Fprintf(&b, "; reset %s", k.Name)
	}
	return b.String()
}

// play plays the script on a new store and returns its answers, one line per step, and the final
// state.
func (sc *script) play(t *testing.T, h Harness) (lines []string) {
	t.Helper()
	h.wrap(t, func(t *testing.T) {
		e := &env{T: t, h: h, s: h.New(t)}
		e.until(nextEdge(e.now(), drawgate.Week, "UTC", 1).Add(sc.offset))
		p := &player{env: e, start: e.now(), versions: map[store.Key][]*store.Plan{}, free: sc.free}
		p.at = p.start
		for i := range sc.steps {
			lines = append(lines, p.step(&sc.steps[i]))
		}
		var all []store.BucketCost
		for _, plan := range sc.plans {
			for k := range 3 {
				all = append(all, store.BucketCost{Key: store.Key{
					Tenant: "t", Policy: "script",
					Name: fmt.Sprint("key", k),
				}, Plan: plan})
			}
		}
		lines = append(lines, p.step(&step{peek: all}))
	})
	return lines
}

// player plays one script.
type player struct {
	*env
	start, at time.Time
	retry     time.Duration               // the last one
	paused    time.Time                   // the end of the last pause that was answered
	versions  map[store.Key][]*store.Plan // that used a bucket, the last one first
	free      bool                        // of the script
}

// change lets the versions that used a bucket charge a unit before another version uses it; except
// before a take, if the only difference is a higher rate. A store need not remember a refusal that
// changes nothing. So the last recorded change determines when a rate was lowered, and which
// version's margin applies to a hold that ended meanwhile; the charge makes this the same for all
// stores. A store need not remember a peek either: it lets a bucket drain in ways that others,
// which end a hold on it without knowing its rate, do not. So a peek also charges a unit.
func (p *player) change(buckets []store.BucketCost, take, peek bool) {
	p.Helper()
	if p.free {
		return
	}
	for i := range buckets {
		b := &buckets[i]
		used := p.versions[b.Key]
		higher := take && !slices.ContainsFunc(used, func(old *store.Plan) bool { return !raised(old, b.Plan) })
		if len(used) > 0 && used[0] != b.Plan && !higher {
			for _, old := range used {
				if old != b.Plan || peek {
					p.charge(b.Key, old)
				}
			}
		}
		if !peek {
			used = slices.DeleteFunc(slices.Clone(used), func(v *store.Plan) bool { return v == b.Plan })
			p.versions[b.Key] = slices.Insert(used, 0, b.Plan)
		}
	}
}

// charge charges one unit of the first limit that counts any.
func (p *player) charge(key store.Key, plan *store.Plan) {
	p.Helper()
	b := store.BucketCost{Key: key, Plan: plan}
	for j, l := range plan.Policy().Limits {
		if l.Kind != drawgate.Concurrency {
			b.N[j] = 1
			p.settle(store.Settlement{Op: store.OpCharge, At: p.at, Buckets: []store.BucketCost{b}})
			return
		}
	}
}

// raised reports whether a later version differs only by new limits, changed amounts, and higher
// bucket rates.
func raised(old, later *store.Plan) bool {
	for _, s := range store.Internal.Specs(old, false) {
		known := false
		for _, t := range store.Internal.Specs(later, false) {
			known = known || s.ID == t.ID && s.Rate <= t.Rate && s.ChargeEnd == t.ChargeEnd && s.Margin == t.Margin &&
				s.Join == t.Join
		}
		if !known {
			return false
		}
	}
	return true
}

func (p *player) step(s *step) string {
	p.Helper()
	wait := s.wait
	if s.retry && p.retry < 48*time.Hour {
		wait += max(0, p.retry-s.early)
	}
	p.advance(wait)
	p.at = p.at.Add(wait)
	var lines []string
	ctx := p.ctx()
	for i := range s.takes {
		p.change(s.takes[i].Buckets, true, false)
	}
	for i := range s.settlements {
		p.change(s.settlements[i].Buckets, false, false)
	}
	p.change(s.peek, false, true)
	for _, k := range s.reset {
		delete(p.versions, k)
	}
	switch {
	case s.takes != nil:
		batch, out := slices.Clone(s.takes), make([]store.Verdict, len(s.takes))
		for i := range batch {
			if batch[i].ID != "" && s.notAfter != 0 {
				batch[i].NotAfter = p.at.Add(s.notAfter)
			}
		}
		if err := p.s.Take(ctx, batch, out); err != nil {
			p.Fatalf("Take: %v", err)
		}
		for i := range out {
			if out[i].RetryAfter > 0 {
				p.retry = out[i].RetryAfter
			}
			lines = append(lines, p.decision(&out[i], s.takes[i].ID != ""))
		}
	case s.settlements != nil:
		batch, out := slices.Clone(s.settlements), make([]store.Outcome, len(s.settlements))
		for i := range batch {
			batch[i].At = p.at.Add(s.at)
			if batch[i].Op == store.OpUnpause && !p.paused.IsZero() {
				batch[i].At = p.paused
			}
		}
		if err := p.s.Settle(ctx, batch, out); err != nil {
			p.Fatalf("Settle: %v", err)
		}
		for i, o := range out {
			if batch[i].Op == store.OpPause {
				p.paused = o.End
			}
			lines = append(lines, fmt.Sprintf("gone %v, kept %v, end %s, back %v, error %v", o.Gone, o.Kept,
				p.since(o.End), o.Back, o.Err))
		}
	case s.peek != nil:
		out := make([]store.State, len(s.peek))
		if err := p.s.Peek(ctx, s.peek, s.priority, out); err != nil {
			p.Fatalf("Peek: %v", err)
		}
		for i := range out {
			var line strings.Builder
			line.WriteString(p.decision(&out[i].Verdict, false))
			for _, u := range out[i].States {
				fmt.Fprintf(&line, " {used %d, held %d, debt %d, most %d, window %s to %s}", u.Used, u.Held, u.Debt,
					u.Max, p.since(u.Start), p.since(u.End))
			}
			if pause := out[i].Pause; pause != (store.Pause{}) {
				fmt.Fprintf(&line, " paused until %s: %q", p.since(pause.Until), pause.Reason)
			}
			lines = append(lines, fmt.Sprintf("%s open %d", &line, out[i].Open))
		}
	case s.reset != nil:
		if r, ok := p.s.(store.Resetter); !ok {
			p.Fatal("scripts reset buckets: the store cannot")
		} else if err := r.Reset(ctx, s.reset); err != nil {
			p.Fatalf("Reset: %v", err)
		}
	}
	return strings.Join(lines, " | ")
}

// decision formats everything in a decision.
func (p *player) decision(d *store.Verdict, held bool) string {
	if errors.Is(d.Fail, store.ErrIDReused) {
		return "reused"
	}
	if d.Fail != nil {
		return d.Fail.Error()
	}
	var b strings.Builder
	fmt.Fprintf(&b, "at %s: allowed %v, replayed %v, %v, delay %v, retry %v, hold until %s", p.since(d.At()), d.Allowed,
		d.Replayed, d.Reason,
		d.Delay(), d.RetryAfter, p.since(d.HoldEnd()))
	// a lower bound: stores may differ in how well they know it
	if d.EarliestRetry < 0 || d.EarliestRetry > d.RetryAfter {
		p.Errorf("earliest %v, retry-after %v", d.EarliestRetry, d.RetryAfter)
	}
	if held && d.Allowed {
		for k := range d.Buckets() {
			fmt.Fprintf(&b, ", granted %v", d.Granted(k))
		}
	}
	for _, r := range results(*d) {
		fmt.Fprintf(&b, " [%d.%d: remaining %d, retry %v, reset %s]", r.Bucket, r.Limit, r.Remaining, r.RetryAfter,
			p.since(r.ResetAt))
	}
	return b.String()
}

func (p *player) since(t time.Time) string {
	if t.IsZero() {
		return "never"
	}
	return t.Sub(p.start).String()
}
