package record

import "testing"

// TestARateThatThoseBeforeChanged: a program of the version before, to which what is remembered is
// an open reservation, drained a bucket at another rate and wrote the record. What has drained does
// not come back.
//
// req: A12
func TestARateThatThoseBeforeChanged(t *testing.T) {
	t.Parallel()
	const sec, start = 1_000_000, 1_000_000_000_000_000
	leaky := func(rate int64) []Spec {
		s := Spec{ID: 1, Kind: Bucket, Window: 100 * sec, Rate: rate}
		s.Scale, s.Drain = BucketScale(rate, s.Window)
		for i := range s.Effective {
			s.Effective[i] = 1000
		}
		return []Spec{s}
	}
	fast, slow := leaky(1000), leaky(10)
	asks := []Ask{{Rec: &Record{}, Specs: fast, N: Amounts{100}}}
	Decide(asks, &Take{ID: "id", Grant: 7, Hold: sec}, start)
	r := asks[0].Rec
	now := int64(start + sec)
	r.Advance(fast, now)
	if r.past == nil {
		t.Fatal("not remembered")
	}
	now += 8 * sec // 90 of 100 have drained
	r.Advance(fast, now)
	// the version before: an open reservation, and nothing is forgotten
	old, _, err := Decode(Append(nil, r, Whole))
	if err != nil {
		t.Fatal(err)
	}
	old.Open = map[string]*Open{}
	for _, o := range old.past.all() {
		old.Open[o.id] = o
	}
	old.past = nil
	old.Reorder()
	old.Advance(slow, now+1)
	Charge([]Ask{{Rec: old, Specs: slow, N: Amounts{100}}}, now+1, now+1) // of somebody else

	r, _, err = Decode(Append(nil, old, Whole))
	if err != nil {
		t.Fatal(err)
	}
	asks = []Ask{{Rec: r, Specs: slow}}
	Correct(asks, "id", 7, true, now+2)
	if used := r.Usage(&slow[0], 0).Used; used < 100 {
		t.Errorf("%d are used, and somebody has just used 100", used)
	}
}
