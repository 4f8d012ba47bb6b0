package record_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/internal/record"
)

// correct corrects what the hold of a grant left that has ended, and reports whether it was
// remembered.
func (b *bucket) correct(id string, grant uint64, cancel bool, n ...int64) bool {
	asks := []record.Ask{{Rec: b.rec, Specs: b.specs, N: amounts(n...)}}
	return record.Correct(asks, id, grant, cancel, b.now) != nil
}

// reopen writes the record down and reads it again.
func (b *bucket) reopen(t *testing.T) {
	t.Helper()
	rec, _, err := record.Decode(record.Append(nil, b.rec, record.Whole))
	if err != nil {
		t.Fatal(err)
	}
	b.rec = rec
}

// usedOfAll returns what each limit has used.
func (b *bucket) usedOfAll() (n record.Amounts) {
	for i := range b.specs {
		n[i] = b.used(i).Used
	}
	return n
}

// atTheEnd has the kinds of limits that count from the settlement on.
func atTheEnd(tb testing.TB) *bucket {
	tb.Helper()
	return newBucket(tb,
		drawgate.Limit{Kind: drawgate.Bucket, Window: 100 * time.Hour, Amount: 100, Charge: drawgate.ChargeEnd},
		drawgate.Limit{Kind: drawgate.Rolling, Window: 2 * time.Hour, Amount: 100, Charge: drawgate.ChargeEnd},
		drawgate.Limit{Kind: drawgate.Calendar, Every: drawgate.Day, Amount: 100, Charge: drawgate.ChargeEnd},
		drawgate.Limit{Kind: drawgate.Concurrency, Amount: 100},
	)
}

// TestCorrect: a hold ended without a settlement, and counts as granted; then it is said how much
// of it was used. That counts once, also by a record that was written down meanwhile, and what is
// said to be used beyond the grant is not counted here.
//
// req: A12
func TestCorrect(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		cancel bool
		used   int64
		want   int64
	}{
		{"less", false, 3, 3},
		{"all", false, 5, 5},
		{"the estimate", false, record.KeepEstimate, 5},
		{"more", false, 9, 5},
		{"nothing", true, 0, 0},
	} {
		for _, written := range []bool{false, true} {
			b := atTheEnd(t)
			if v, _ := b.take(record.Take{ID: "id", Grant: 7, Hold: mnt}, 5, 5, 5, 5); !v.Allowed {
				t.Fatal("refused")
			}
			b.allow(1, 1, 1, 0)
			b.now += 2 * mnt
			if got := b.usedOfAll(); got != amounts(6, 6, 6) {
				t.Fatalf("%s: %v are used at the end of the hold", c.name, got)
			}
			if written {
				b.reopen(t)
			}
			if b.rec.Held() || b.correct("id", 8, true) || b.correct("other", 7, true) {
				t.Errorf("%s: it is open, or another one was corrected", c.name)
			}
			if !b.correct("id", 7, c.cancel, c.used, c.used, c.used, c.used) {
				t.Errorf("%s: not remembered", c.name)
			}
			if got := b.usedOfAll(); got != amounts(c.want+1, c.want+1, c.want+1) {
				t.Errorf("%s: %v are used, want %d of each", c.name, got, c.want+1)
			}
			if b.correct("id", 7, true) {
				t.Errorf("%s: corrected a second time", c.name)
			}
		}
	}
}

// TestNothingSeesWhatIsRemembered: neither a take of its id or its grant, nor a settlement, and the
// record is gone when nothing in it counts.
func TestNothingSeesWhatIsRemembered(t *testing.T) {
	t.Parallel()
	b := newBucket(t, drawgate.Limit{Kind: drawgate.Rolling, Window: 10 * time.Minute, Amount: 10})
	held := record.Take{ID: "id", Grant: 7, Hold: mnt}
	b.take(held, 5)
	b.now += mnt
	b.reopen(t)
	b.rec.Advance(b.specs, b.now)
	if until := b.rec.Until(); until != b.now+9*mnt || b.rec.NextEnd() != 0 || len(b.rec.Open) != 0 {
		t.Errorf("the record counts until %d s from now, %d open", (until-b.now)/sec, len(b.rec.Open))
	}
	settled, _ := record.Settle([]record.Ask{{Rec: b.rec, Specs: b.specs}}, "id", 7, true, b.now)
	if v, _ := b.take(record.Take{ID: "id", Grant: 8, Hold: mnt}, 1); settled || !v.Allowed || v.Replayed {
		t.Errorf("settled: %v; the id again: %+v", settled, v)
	}
	b.now += mnt
	if v, _ := b.take(held, 4); !v.Allowed || v.Replayed || b.allow(1) {
		t.Errorf("the same grant again: %+v", v)
	}
}

// TestOpenAgain: a grant that was opened again after its hold was settled, so only that counts.
func TestOpenAgain(t *testing.T) {
	t.Parallel()
	b := newBucket(t, drawgate.Limit{Kind: drawgate.Rolling, Window: time.Hour, Amount: 100})
	for range 2 {
		b.take(record.Take{ID: "id", Grant: 7, Hold: mnt}, 5)
		b.now += mnt - 1
	}
	b.now++
	asks := []record.Ask{{Rec: b.rec, Specs: b.specs, N: amounts(3)}}
	record.Correct(asks, "id", 7, false, b.now-2)
	record.Settle(asks, "id", 7, false, b.now-2)
	if got := b.used(0).Used; got != 3 {
		t.Errorf("%d are used, want 3", got)
	}
}

// TestWhatIsForgotten: a record forgets holds an hour after their end, or when their units no
// longer count, the first ones if there are many, and those whose units a refund or a change of the
// rate may have touched. Then it gives nothing back.
func TestWhatIsForgotten(t *testing.T) {
	t.Parallel()
	start := func(l drawgate.Limit) *bucket {
		b := newBucket(t, l)
		b.take(record.Take{ID: "id", Grant: 7, Hold: mnt}, 5)
		b.now += mnt
		return b
	}
	long := drawgate.Limit{Kind: drawgate.Rolling, Window: 24 * time.Hour, Amount: 1000}
	short := drawgate.Limit{Kind: drawgate.Rolling, Window: 10 * time.Minute, Amount: 10}
	leaky := drawgate.Limit{Kind: drawgate.Bucket, Window: 24 * time.Hour, Amount: 48, Burst: 100}
	for what, c := range map[string]struct {
		limit drawgate.Limit
		then  func(b *bucket)
		want  bool
	}{
		"just before an hour":            {long, func(b *bucket) { b.now += hour - 1 }, true},
		"after an hour":                  {long, func(b *bucket) { b.now += hour }, false},
		"just before its units are over": {short, func(b *bucket) { b.now += 9*mnt - 1 }, true},
		"its units are over":             {short, func(b *bucket) { b.now += 9 * mnt }, false},
		"a refund": {long, func(b *bucket) {
			record.Refund([]record.Ask{{Rec: b.rec, Specs: b.specs, N: amounts(1)}}, 0, b.now)
		}, false},
		"another rate": {leaky, func(b *bucket) {
			l := leaky
			l.Amount, l.Name = 24, "l0"
			b.specs[0] = spec(t, l)
		}, false},
		"the same rate":           {leaky, func(*bucket) {}, true},
		"as many as it remembers": {long, func(b *bucket) { b.end(record.MostPast - 1) }, true},
		"more":                    {long, func(b *bucket) { b.end(record.MostPast) }, false},
	} {
		b := start(c.limit)
		c.then(b)
		b.rec.Advance(b.specs, b.now)
		b.reopen(t)
		before := b.used(0).Used
		if got := b.correct("id", 7, true); got != c.want {
			t.Errorf("%s: remembered %v", what, got)
		}
		if after := b.used(0).Used; (after < before) != c.want {
			t.Errorf("%s: %d were used, and then %d", what, before, after)
		}
	}
}

// end has n more holds end.
func (b *bucket) end(n int) {
	for i := range n {
		b.take(record.Take{ID: fmt.Sprint(i), Grant: 100, Hold: sec}, 1)
		b.now += sec
		b.rec.Advance(b.specs, b.now)
	}
}

// TestSomebodyHasItsName: an id like that of what is remembered in bytes is one as any other.
func TestSomebodyHasItsName(t *testing.T) {
	t.Parallel()
	day := drawgate.Limit{Kind: drawgate.Rolling, Window: 24 * time.Hour, Amount: 100}
	ended := newBucket(t, day)
	ended.take(record.Take{ID: "id", Grant: 7, Hold: mnt}, 5)
	ended.now += mnt
	ended.rec.Changes = &record.Changes{}
	ended.rec.Advance(ended.specs, ended.now)
	name := ended.rec.Changes.Touched[1] // the first one is that of the reservation
	if len(ended.rec.Changes.Touched) != 2 || ended.rec.Reservation(name) == nil || ended.rec.Reservation("id") != nil {
		t.Fatalf("touched %q", ended.rec.Changes.Touched)
	}
	later := newBucket(t, day)
	later.take(record.Take{ID: "id", Grant: 7, Hold: mnt}, 5)
	for _, b := range []*bucket{ended, later} {
		if v, _ := b.take(record.Take{ID: name, Grant: 7, Hold: hour}, 2); !v.Allowed || v.Replayed {
			t.Fatalf("the take: %+v", v)
		}
		b.now = ended.now
		b.reopen(t)
		b.rec.Advance(b.specs, b.now)
		b.reopen(t)
		if o := b.rec.Open[name]; o == nil || len(b.rec.Open) != 1 || b.correct("id", 7, true) {
			t.Errorf("open: %v", b.rec.Open)
		}
	}
}

// TestThoseBeforeReadIt: in bytes it is an open reservation of which nothing is held: what a
// program of the version before counts is the same, and what that writes is remembered.
func TestThoseBeforeReadIt(t *testing.T) {
	t.Parallel()
	b := atTheEnd(t)
	b.take(record.Take{ID: "id", Grant: 7, Hold: mnt}, 5, 5, 5, 5)
	b.now += mnt
	b.rec.Changes = &record.Changes{}
	b.rec.Advance(b.specs, b.now)
	o := b.rec.Reservation(b.rec.Changes.Touched[1])
	got, err := record.DecodeOpen(record.AppendOpen(nil, o))
	if err != nil || !cmp.Equal(got, o, same) {
		t.Fatal(err, cmp.Diff(o, got, same))
	}
	if o.End != b.now+hour || len(o.Parts) != 3 || o.Lease {
		t.Errorf("got %+v", o)
	}
	for _, p := range o.Parts {
		if p.Held || p.Passed || p.N != 5 {
			t.Errorf("got %+v", p)
		}
	}
}

// TestCorrectLikeASettlement: what is corrected after its hold counts at least what a settlement
// just before the hold's end would have left, whatever others use, and at instants at which windows
// end, too. Of windows that count from the take on it is the same: a bucket has drained meanwhile,
// and what is charged at the end came later.
//
// req: A4, A12
func TestCorrectLikeASettlement(t *testing.T) {
	t.Parallel()
	for seed := range uint64(scale(6000)) {
		likeASettlement(t, newDice(seed), seed)
	}
}

func likeASettlement(t *testing.T, d dice, seed uint64) {
	t.Helper()
	bucketOf, same := allKinds, [record.MaxLimits]bool{1: true, 2: true, 3: true, 4: true, 5: true}
	if d.one(3) {
		bucketOf, same = atTheEnd, [record.MaxLimits]bool{3: true}
	}
	settled, corrected := bucketOf(t), bucketOf(t)
	both, now := []*bucket{settled, corrected}, epoch+d.between(0, 2*hour)
	pass := func(to int64) { // others use something now and then
		for ; now < to; now += d.between(1, 10*mnt) {
			n := d.between(0, 5)
			for _, b := range both {
				b.now = now
				b.charge(now, n, n, n, n, n, n)
			}
		}
		now = to
		for _, b := range both {
			b.now = now
			b.rec.Advance(b.specs, now)
		}
	}
	check := func() {
		t.Helper()
		got, want := corrected.usedOfAll(), settled.usedOfAll()
		for i := range got {
			if got[i] < want[i] || same[i] && got[i] != want[i] {
				t.Fatalf("seed %d: corrected %v, settled in time %v", seed, got, want)
			}
		}
	}
	pass(now + d.between(1, mnt))
	n, hold := d.between(1, 5), d.between(1, 20*mnt)
	for _, b := range both {
		v, _ := b.take(record.Take{ID: "id", Grant: 7, Hold: hold}, n, n, n, n, n, n)
		if !v.Allowed {
			return
		}
	}
	end, used := now+hold, d.between(0, n)
	u := amounts(used, used, used, used, used, used)
	pass(end - 1)
	record.Settle([]record.Ask{{Rec: settled.rec, Specs: settled.specs, N: u}}, "id", 7, false, now)
	pass(end + d.between(0, 30*mnt))
	if d.one(2) {
		corrected.reopen(t)
	}
	corrected.correct("id", 7, false, u[:]...)
	for range 4 {
		check()
		pass(now + d.between(1, hour))
	}
}
