package record

import (
	"math"
	"math/big"
	"math/rand/v2"
	"testing"
)

// FuzzMath compares the arithmetic that saturates, and the change of a rate, with big integers.
func FuzzMath(f *testing.F) {
	for _, v := range [][4]int64{
		{0, 0, 1, 1},
		{math.MaxInt64, math.MaxInt64, math.MaxInt64, 1},
		{maxUsed, maxUsed, 60_000_000, 1_000_000},
		{maxUsed - 1, 1_000_000, 59_999_999, 31_622_400_000_000},
		{1 << 52, 3, 86_400_000_000, 86_399_999_999},
	} {
		f.Add(v[0], v[1], v[2], v[3])
	}
	f.Fuzz(func(t *testing.T, a, b, from, to int64) { checkMath(t, a, b, from, to) })
}

func TestMath(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(1, 2))
	any63 := func() int64 { return r.Int64() >> r.IntN(63) }
	for range 50_000 {
		checkMath(t, any63(), any63(), any63(), any63())
	}
}

func checkMath(t *testing.T, a, b, from, to int64) {
	t.Helper()
	if a < 0 || b < 0 {
		return
	}
	bigA, bigB, most := big.NewInt(a), big.NewInt(b), big.NewInt(math.MaxInt64)
	capped := func(x, most *big.Int) int64 {
		if x.Cmp(most) > 0 {
			x = most
		}
		return x.Int64()
	}
	if got, want := mulSat(a, b), capped(new(big.Int).Mul(bigA, bigB), most); got != want {
		t.Errorf("mulSat(%d, %d) = %d, want %d", a, b, got, want)
	}
	if got, want := mulCap(a, b), capped(new(big.Int).Mul(bigA, bigB), big.NewInt(maxUsed)); got != want {
		t.Errorf("mulCap(%d, %d) = %d, want %d", a, b, got, want)
	}
	if got, want := addSat(a, b), capped(new(big.Int).Add(bigA, bigB), most); got != want {
		t.Errorf("addSat(%d, %d) = %d, want %d", a, b, got, want)
	}
	if b > 0 {
		q, m := new(big.Int).DivMod(bigA, bigB, new(big.Int))
		if m.Sign() > 0 {
			q.Add(q, big.NewInt(1))
		}
		if got := CeilDiv(a, b); got != q.Int64() {
			t.Errorf("CeilDiv(%d, %d) = %d, want %d", a, b, got, q)
		}
	}
	if from > 0 {
		q, m := new(big.Int).DivMod(new(big.Int).Mul(bigA, bigB), big.NewInt(from), new(big.Int))
		if m.Sign() > 0 {
			q.Add(q, big.NewInt(1))
		}
		if got, want := mulDivUp(a, b, from), capped(q, big.NewInt(maxUsed)); got != want {
			t.Errorf("mulDivUp(%d, %d, %d) = %d, want %d", a, b, from, got, want)
		}
	}
	checkRescale(t, a%(maxUsed+1), from, to)
	checkLeak(t, a%(maxUsed+1), b, from, to)
}

// checkRescale: what is used is rounded up to a whole part.
func checkRescale(t *testing.T, used, from, to int64) {
	t.Helper()
	const widest = 366 * 24 * 3600 * 1_000_000
	from, to = 1+abs(from)%widest, 1+abs(to)%widest
	exact := new(big.Int).Mul(big.NewInt(used), big.NewInt(to))
	low := new(big.Int).Quo(new(big.Int).Add(exact, big.NewInt(from-1)), big.NewInt(from))
	got := rescale(used, from, to)
	if low.Cmp(big.NewInt(maxUsed)) > 0 {
		low.SetInt64(maxUsed)
	}
	if got != low.Int64() {
		t.Errorf("rescale(%d, %d, %d) = %d, want %d", used, from, to, got, low)
	}
}

// checkLeak: the lower rate drains, to the part.
func checkLeak(t *testing.T, used, dt, rate, window int64) {
	t.Helper()
	window = 1000 + abs(window)%(366*24*3600*1_000_000)
	rate, dt = 1+abs(rate)%1_000_000_000_000, dt%(1<<52)
	for _, was := range []int64{1 + rate/3, rate + window/7} {
		scale, _ := BucketScale(was, window)
		st := &State{Kind: Bucket, Window: window, Used: used, Scale: scale, Rate: was}
		s := &Spec{Kind: Bucket, Window: window, Rate: rate}
		s.Scale, s.Drain = BucketScale(rate, window)
		st.Leak(s, dt)
		lower := min(rate, was)
		parts, drain := BucketScale(lower, window)
		want := big.NewInt(rescale(used, scale, parts))
		want.Sub(want, new(big.Int).Mul(big.NewInt(drain), big.NewInt(dt)))
		if want.Sign() < 0 {
			want.SetInt64(0)
		}
		if st.Used != want.Int64() || st.Scale != parts || st.Rate != lower || st.At != dt {
			t.Errorf("used=%d after %d µs at %d, then %d per %d µs: got %+v, want %d", used, dt, was, rate, window, st,
				want)
		}
	}
}

// abs returns |x|, for the smallest int64 the largest.
func abs(x int64) int64 { return max(x, -max(x, -math.MaxInt64)) }
