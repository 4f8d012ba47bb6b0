package telemetry_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/telemetry"
)

// The first keys that are refused have a series each, the others share one, and no key can be read.
//
// req: B9
func TestIdentifiersAreBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := telemetry.NewHasher([]byte("a salt that is long enough"))
		r := newRig(t, &telemetry.Options{Identifiers: 3, Hasher: h})
		l := r.limiter(rolling("per-ip", "rpm", 1, 365*24*time.Hour))
		refuse := func(i, n int) { allow(t, l, fmt.Sprintf("203.0.113.%d", i), n) }
		name := func(i int) string {
			return h.Key(drawgate.Key{Policy: "per-ip", Name: fmt.Sprintf("203.0.113.%d", i)})
		}
		for i := range 100 {
			refuse(i, 2)
		}
		r.want(97, "rate_limit_hits_total", "type", "per-ip", "identifier", "other")
		for i := range 3 {
			r.want(1, "rate_limit_hits_total", "type", "per-ip", "identifier", name(i))
		}
		if n := len(r.family("rate_limit_hits_total").GetMetric()); n != 4 {
			t.Errorf("got %d series", n)
		}
		if all := fmt.Sprint(r.family("rate_limit_hits_total")); strings.Contains(all, "203.0") {
			t.Errorf("got a key in the labels, want hashes only: %s", all)
		}
		// A key that was not refused for an hour gives its series to another.
		time.Sleep(40 * time.Minute)
		refuse(0, 1)
		refuse(50, 1)
		time.Sleep(40 * time.Minute)
		refuse(50, 1)
		r.want(2, "rate_limit_hits_total", "type", "per-ip", "identifier", name(0))
		r.want(1, "rate_limit_hits_total", "type", "per-ip", "identifier", name(50))
		r.none("rate_limit_hits_total", "type", "per-ip", "identifier", name(1))
	})
}

// With a negative number of identifiers all keys share one series.
func TestIdentifiersCanBeTurnedOff(t *testing.T) {
	t.Parallel()
	r := newRig(t, &telemetry.Options{Identifiers: -1, RawIdentifiers: true})
	allow(t, r.limiter(rolling("p", "rpm", 1, time.Hour)), "k", 3)
	r.want(2, "rate_limit_hits_total", "type", "p", "identifier", "other")
}

// Raw identifiers are shown as they are, unless they cannot be a label's value.
func TestRawIdentifiersAreShownAsTheyAre(t *testing.T) {
	t.Parallel()
	h := telemetry.NewHasher(nil)
	r := newRig(t, &telemetry.Options{RawIdentifiers: true, Hasher: h})
	l := r.limiter(rolling("p", "rpm", 1, time.Hour))
	for _, k := range []drawgate.Key{
		{Name: "plain"},
		{Tenant: "acme", Name: "plain"},
		{Name: "\xff"},
		{Name: strings.Repeat("long", 99)},
		{Name: "other"},
	} {
		for range 2 {
			if _, _, err := l.Take(t.Context(), drawgate.Request{Buckets: []drawgate.Ask{{
				Tenant: k.Tenant,
				Key:    k.Name,
			}}}); err != nil {
				t.Fatal(err)
			}
		}
		k.Policy, k.Name = "p", drawgate.BoundedKey(k.Name)
		want := h.Key(k)
		switch {
		case k.Tenant != "":
			want = "acme/plain"
		case k.Name == "plain":
			want = "plain"
		}
		r.want(1, "rate_limit_hits_total", "type", "p", "identifier", want)
	}
}

// Policies beyond the first ones share a series, and so do a policy's limits beyond the first ones.
func TestSeriesOfPoliciesAreBounded(t *testing.T) {
	t.Parallel()
	check(t, telemetry.Places(2, "a", "b", "c", "a", "d", "b"), "a", "b", "other", "a", "other", "b")
	one := newRig(t, nil)
	for i := range 100 {
		allow(t, one.limiter(rolling("one", fmt.Sprintf("limit%d", i), 1, time.Hour)), "k", 2)
	}
	if n := len(one.family("rate_limit_exceeded_total").GetMetric()); n != 25 {
		t.Errorf("got %d series", n)
	}
	one.want(76, "rate_limit_exceeded_total", "period", "other", "policy", "one", "limit", "other")
}

// Names of policies that cannot be a label's value are changed into one.
func TestUnusualPolicyNamesBecomeLabels(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	allow(t, r.limiter(rolling("a\xffb", "rpm", 1, time.Hour)), "k", 1)
	r.want(1, "drawgate_decisions_total", "policy", "a\uFFFDb", "outcome", "allowed")
}

// The labels of lines of all processes are bounded as those of decisions are, and can be labels.
func TestLinesOfPoliciesAreBounded(t *testing.T) {
	t.Parallel()
	lines := []drawgate.Line{
		{Key: drawgate.Key{Policy: "a\xffb"}, Tickets: 5, Oldest: time.Second},
		{Key: drawgate.Key{Policy: "a\xfeb"}, Tickets: 3, Oldest: time.Minute},
	}
	for i := range 2000 {
		lines = append(lines, drawgate.Line{Key: drawgate.Key{Policy: fmt.Sprint("policy", i)}, Tickets: 1 + i%7})
	}
	r := newRig(t, &telemetry.Options{Lines: func() []drawgate.Line { return lines }})
	r.want(5, "drawgate_line_length", "policy", "a\uFFFDb")
	r.want(60, "drawgate_line_oldest_seconds", "policy", "a\uFFFDb")
	r.want(7, "drawgate_line_length", "policy", "other")
	if n := len(r.family("drawgate_line_length").GetMetric()); n > 1001 {
		t.Errorf("%d series", n)
	}
}

// A hash depends on the salt, the tenant and the key, and is the same in every process that has the
// salt.
func TestHashDependsOnSaltTenantAndKey(t *testing.T) {
	t.Parallel()
	salt := []byte("a salt that is long enough")
	a, b, random := telemetry.NewHasher(salt), telemetry.NewHasher(salt), telemetry.NewHasher(nil)
	clear(salt) // it is the caller's
	k := drawgate.Key{Tenant: "t", Policy: "p", Name: "secret"}
	same := drawgate.Key{Tenant: "t", Policy: "q", Name: "secret"}
	if a.Key(k) != b.Key(k) || a.Key(k) != a.Key(same) || len(a.Key(k)) != 12 ||
		strings.Trim(a.Key(k), "0123456789abcdef") != "" {
		t.Errorf("%q, %q and %q", a.Key(k), b.Key(k), a.Key(same))
	}
	if random.Key(k) == a.Key(k) || random.Key(k) == telemetry.NewHasher(nil).Key(k) {
		t.Error("got the same hash with another salt, want another hash")
	}
	if a.Key(drawgate.Key{Tenant: "ts", Name: "ecret"}) == a.Key(k) {
		t.Error("got the same hash for another split of tenant and key, want another hash")
	}
}

// A decision does not allocate once its policy and key are known.
func TestDecisionsDoNotAllocate(t *testing.T) {
	m := newRig(t, nil).m
	w := telemetry.NewWarner(&telemetry.WarnerOptions{Metrics: m})
	defer w.Close()
	yes, no := decisions(t, 2)
	o := telemetry.Join(m.Observer(), w.Observer(), telemetry.NewRefusals().Observer())
	call := &drawgate.StoreCall{Op: "take"}
	observe := func() {
		o.Taken(yes)
		o.Taken(no)
		o.Called(call)
	}
	observe()
	if n := testing.AllocsPerRun(100, observe); n > 0 {
		t.Errorf("got %v allocations per decision, want 0", n)
	}
}
