package storetest

import (
	"fmt"
	"strings"
	"time"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/store"
)

var keyCases = []testCase{
	{"any bytes", "keys of any bytes are separate buckets, even if they look the same when joined", testKeys, true},
	{"any bytes in a policy's name", "policies are separate, whatever bytes their names have", testPolicyNames, true},
	{"tenants", "tenants share nothing", testTenants, true},
	{
		"ids of any bytes",
		"reservations are separate, whatever bytes their ids have, and an id in one bucket says nothing about another",
		testIDs, true,
	},
	{"many keys", "a thousand keys are a thousand buckets, of a slow store two hundred", testManyKeys, true},
}

// names returns names that look alike to code that joins, escapes, folds, trims or hashes too
// little.
func names() []string {
	long := strings.Repeat("k", 64<<10)
	ns := []string{
		"", " ", "a", "A", "a ", " a", "aa", ":", "::", "a:", ":a", "a:b", "a::b", "a:b:c", "a_b", "a__b", "a%3Ab",
		"a%3ab", "a%253Ab", "%", "%%", "%00",
		"\x00", "a\x00", "a\x00b", "\n", "a\nb", "a\r\nb", "{a}", "{a}b", "a{b}", "{", "}", "{}", "*", "?", "[a]", "a*",
		"'", "''", "a'b", `"`, `a"b`, `\`, `a\b`,
		"--", ";", "DROP TABLE", "null", "NULL", "0", "00", "0.0", "1e3", "1000", "\xff", "\xfe", "\xff\xfe", "a\xffb",
		"\xc3\x28", "\u00e9", "e\u0301", "\ufffd", "\ufeff", "ä", "日本", "\U0001F510",
		"/", "a/b", "../a", ".", "..", "\t", "a\tb", "-", "a-b", "+", "a+b", "a b", "a|b", "|", "$", "#", "&", "=",
		"a=b", ",", "a,b",
		strings.Repeat("n", 199), strings.Repeat("n", 200), strings.Repeat("n", 201), strings.Repeat("n", 300),
		strings.Repeat("n", 301),
		strings.Repeat(":", 70), strings.Repeat("%3A", 70), strings.Repeat("\x00", 255), strings.Repeat("\x00", 256),
		long, long + "a", long + "b", "x" + long,
	}
	return ns
}

// distinct takes all units of each bucket, which must be there, and then one more, which must not.
func (e *env) distinct(buckets []*bucket) {
	e.Helper()
	for _, want := range []bool{true, false} {
		for _, b := range buckets {
			if d := b.take(1); ok(e, d) != want {
				e.Errorf("key %.200q: allowed %v, want %v", b.key, d.Allowed, want)
			}
		}
	}
}

// Peers fail here (21): parts that are joined unescaped share a counter.
func testKeys(e *env) {
	plan := e.plan(rolling(1, time.Hour))
	seen := map[string]bool{}
	var buckets []*bucket
	for _, n := range names() {
		if seen[n] {
			e.Fatalf("%q twice", n)
		}
		seen[n] = true
		buckets = append(buckets, e.of(n, plan))
	}
	e.distinct(buckets)
	// A bucket with a record has the same key as its short form.
	for _, b := range buckets[:60] {
		b.wantUsed(fmt.Sprintf("%q", b.key.Name), 1)
	}
}

func testPolicyNames(e *env) {
	var buckets []*bucket
	for _, n := range names() {
		if n == "" || len(n) > 128 {
			continue
		}
		buckets = append(buckets, e.of("k", e.compile(drawgate.Policy{
			Name:   n,
			Limits: []drawgate.Limit{leaky(1, time.Hour, 0)},
		})))
	}
	e.distinct(buckets)
}

func testTenants(e *env) {
	plans := map[string]*store.Plan{}
	var buckets []*bucket
	add := func(tenant, policy, name string) {
		if plans[policy] == nil {
			plans[policy] = e.compile(drawgate.Policy{Name: policy, Limits: []drawgate.Limit{rolling(1, time.Hour)}})
		}
		b := e.of(name, plans[policy])
		b.key.Tenant = tenant
		buckets = append(buckets, b)
	}
	for _, k := range []store.Key{
		{Tenant: "a", Policy: "b", Name: "c"},
		{Tenant: "a:b", Policy: "c", Name: ""},
		{Tenant: "", Policy: "a", Name: "b:c"},
		{Tenant: "a", Policy: "b:c", Name: ""},
		{Tenant: "", Policy: "a:b", Name: "c"},
		{Tenant: "a", Policy: "b", Name: ":c"},
		{Tenant: "a:", Policy: "b", Name: "c"},
		{Tenant: "a", Policy: ":b", Name: "c"},
		{Tenant: "a%3Ab", Policy: "c", Name: ""},
		{Tenant: "a_b", Policy: "c", Name: "d"},
		{Tenant: "a", Policy: "b_c", Name: "d"},
		{Tenant: "a\x00b", Policy: "c", Name: "d"},
		{Tenant: "a", Policy: "b\x00c", Name: "d"},
		{Tenant: "", Policy: "c", Name: ""},
		{Tenant: "c", Policy: "c", Name: ""},
		{Tenant: "", Policy: "c", Name: "c"},
		{Tenant: "{a}", Policy: "b", Name: "c"},
		{Tenant: "a}", Policy: "b", Name: "{c"},
	} {
		add(k.Tenant, k.Policy, k.Name)
	}
	for _, tenant := range names() {
		if len(tenant) <= 300 {
			add(tenant, "policy", "the same name")
		}
	}
	e.distinct(buckets)
}

func testIDs(e *env) {
	b, other := e.bucket("k", rolling(10_000, time.Hour)), e.bucket("other", rolling(10_000, time.Hour))
	var ids []string
	for _, id := range names() {
		if id != "" && len(id) <= 300 {
			ids = append(ids, id)
		}
	}
	for i, id := range ids {
		e.allowed(id, b.hold(id, time.Hour, int64(i+1)))
		e.allowed(id, other.hold(id, time.Hour, 1))
	}
	for i, id := range ids {
		d := b.hold(id, time.Hour, int64(i+1))
		e.allowed(id, d)
		if !d.Replayed {
			e.Errorf("id %q is not open", id)
		}
		if !b.cancel(id) || b.cancel(id) {
			e.Errorf("id %q was not open once", id)
		}
	}
	b.wantUsed("all cancelled", 0)
	other.wantUsed("the same ids in another bucket", int64(len(ids)))
}

func testManyKeys(e *env) {
	plan := e.plan(leaky(1, 24*time.Hour, 0), rolling(1, 24*time.Hour))
	n := e.histories(1000)
	batch, out := make([]store.Take, n), make([]store.Verdict, n)
	for i := range batch {
		batch[i] = store.Take{Buckets: e.of(fmt.Sprint("key ", i), plan).costs(1, 1)}
	}
	for _, want := range []bool{true, false} {
		if err := e.s.Take(e.ctx(), batch, out); err != nil {
			e.Fatal(err)
		}
		for i := range out {
			if ok(e, out[i]) != want {
				e.Fatalf("key %d: allowed %v, want %v", i, out[i].Allowed, want)
			}
		}
	}
}
