package guard

import (
	"hash/maphash"
	"slices"
	"sync"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/internal/record"
)

// page is what this process knows of one bucket: what it was admitted, by the store or in its place, and what the store has yet to be told.
// It is guarded by its shard's mutex.
type page struct {
	rec    record.Record
	fresh  bool      // nothing is known of what a former process was admitted
	asked  []*asking // takes that the store is being asked for
	bills  []bill    // admitted here in plain takes: the store has yet to be told
	owed   []*held   // the same of reservations, and of settlements
	telled bool      // the store is being told
	fault  error     // why it could not be told, for this bucket alone

	oneAsked [1]*asking // room for asked, which most pages never need more of
}

// asking is one bucket's part of a take that the store is being asked for: until it has answered, its units count here.
type asking struct {
	terms *terms
	n     drawgate.Amounts
}

// bill is what was admitted here under a plan: units per limit of the plan, kept limits only.
type bill struct {
	terms *terms
	n     drawgate.Amounts
}

// owes reports whether the store has yet to be told something of the bucket, before it decides about it again.
func (p *page) owes() bool { return len(p.bills) > 0 || len(p.owed) > 0 || p.telled }

// blank reports whether the page says nothing that an absent one would not say.
func (p *page) blank() bool {
	return len(p.asked) == 0 && !p.owes() && len(p.rec.Limits) == 0 && !p.rec.Held()
}

// charge adds to what the store has to be told.
func (p *page) charge(t *terms, n *drawgate.Amounts) {
	if *n == (drawgate.Amounts{}) {
		return
	}
	for i := range p.bills {
		if b := &p.bills[i]; b.terms.plan == t.plan {
			for j := range n {
				b.n[j] = min(b.n[j]+n[j], unbounded)
			}
			return
		}
	}
	p.bills = append(p.bills, bill{t, *n})
}

func (p *page) forget(a *asking) {
	if i := slices.Index(p.asked, a); i >= 0 {
		p.asked = slices.Delete(p.asked, i, i+1)
	}
}

func (p *page) settle(h *held) {
	if i := slices.Index(p.owed, h); i >= 0 {
		p.owed = slices.Delete(p.owed, i, i+1)
	}
}

// shards is how many parts the book has, each with its own lock.
const shards = 64

// book holds the pages of all buckets that this process uses. Its size is bounded: a page that still says something is never given up, so a bucket for
// which there is no room has no page, and is treated as one of which everything is used.
type book struct {
	seed  maphash.Seed
	most  int // pages in a shard
	parts [shards]shard
}

type shard struct {
	mu      sync.Mutex
	pages   map[drawgate.Key]*page // guarded by mu
	sweepAt int                    // guarded by mu
	again   int64                  // guarded by mu: when it may be swept again while it is full, by the guard's own clock
	lost    int64                  // guarded by mu: until when something may have been admitted that has no page, by the guard's own clock; 0 if nothing was
}

// firstSweep is the number of pages in a shard from which on it is looked through for those that say nothing any more.
const firstSweep = 64

// sweepPause is how long in µs a full shard is left alone after it was looked through: a flood of new names must not look through it each time.
const sweepPause = 100_000

func newBook(most int) *book {
	b := &book{seed: maphash.MakeSeed(), most: max(1, most/shards)}
	for i := range b.parts {
		b.parts[i].pages = make(map[drawgate.Key]*page)
		b.parts[i].sweepAt = firstSweep
	}
	return b
}

func (b *book) shard(k drawgate.Key) int {
	var h maphash.Hash
	h.SetSeed(b.seed)
	for _, part := range [...]string{k.Tenant, k.Policy, k.Name} {
		_, _ = h.WriteString(part)
		_ = h.WriteByte(0)
	}
	return int(h.Sum64() % shards)
}

// want says which pages are made if there are none.
type want uint8

const (
	found want = iota // none
	kept              // of policies of which a limit is kept here
	every             // all
)

// with calls f with the pages of buckets, locked, in their order; nil where there is none. now is for sweeping, by the guard's clock and by the store's.
func (b *book) with(parts []part, w want, now instant, f func(pages []*page)) {
	h := handPool.Get().(*hand)
	defer h.put()
	for i := range parts {
		h.shards = append(h.shards, parts[i].shard)
	}
	if len(parts) > 1 {
		slices.Sort(h.shards)
		h.shards = slices.Compact(h.shards)
	}
	for _, s := range h.shards {
		b.parts[s].mu.Lock()
	}
	for i := range parts {
		h.pages = append(h.pages, b.page(&b.parts[parts[i].shard], &parts[i], w, now))
	}
	f(h.pages)
	for i, p := range h.pages {
		if p != nil && p.blank() {
			delete(b.parts[parts[i].shard].pages, parts[i].key)
		}
	}
	for _, s := range h.shards {
		b.parts[s].mu.Unlock()
	}
}

// hand is room for the pages of one call.
type hand struct {
	pages  []*page
	shards []int
}

var handPool = sync.Pool{New: func() any { return &hand{} }}

func (h *hand) put() {
	clear(h.pages)
	h.pages, h.shards = h.pages[:0], h.shards[:0]
	handPool.Put(h)
}

// page returns a bucket's page. s.mu is held.
func (b *book) page(s *shard, pt *part, w want, now instant) *page {
	p := s.pages[pt.key]
	if p != nil || w == found || w == kept && len(pt.terms.at) == 0 {
		return p
	}
	if n := len(s.pages); n >= min(s.sweepAt, b.most) && (n < b.most || now.own >= s.again) {
		s.sweep(now.at)
		s.again = now.own + sweepPause
	}
	if len(s.pages) >= b.most {
		s.lose(now.own)
		return nil
	}
	p = &page{fresh: true}
	p.asked = p.oneAsked[:0]
	s.pages[pt.key] = p
	return p
}

// lose notes that something may be admitted until then of a bucket that has no page. s.mu is held.
func (s *shard) lose(until int64) { s.lost = max(s.lost, until) }

// sweep gives up the pages that say nothing any more. s.mu is held.
func (s *shard) sweep(now int64) {
	for k, p := range s.pages {
		if len(p.asked) > 0 || p.owes() {
			continue
		}
		if end := p.rec.NextEnd(); end != 0 && end <= now {
			p.rec.Advance(nil, now)
		}
		if p.rec.Until() <= now {
			delete(s.pages, k)
		}
	}
	s.sweepAt = max(firstSweep, 2*len(s.pages))
}

// Len returns the number of pages.
func (b *book) Len() (n int) {
	for i := range b.parts {
		b.parts[i].mu.Lock()
		n += len(b.parts[i].pages)
		b.parts[i].mu.Unlock()
	}
	return n
}
