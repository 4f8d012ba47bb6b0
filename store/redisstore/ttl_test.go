package redisstore_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/internal/redistest"
	"github.com/drawgate/drawgate/store"
	"github.com/drawgate/drawgate/store/redisstore"
)

func pttl(tb testing.TB, c rueidis.Client, key string) time.Duration {
	tb.Helper()
	ms, err := c.Do(tb.Context(), c.B().Pttl().Key(key).Build()).AsInt64()
	if err != nil {
		tb.Fatal(err)
	}
	return time.Duration(ms) * time.Millisecond
}

// TestPeers12KeysExpire checks that every key has a TTL, from the write that made it on, and that
// it is not set anew by each take.
//
// req: A7, A9
func TestPeers12KeysExpire(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	c, clock := client(t, server), newClock()
	s := redisstore.NewWithClock(c, nil, clock.now)
	for _, l := range []drawgate.Limit{
		{Name: "b", Kind: drawgate.Bucket, Window: time.Minute, Amount: 60},
		{Name: "r", Kind: drawgate.Rolling, Window: time.Hour, Amount: 60},
		{Name: "d", Kind: drawgate.Calendar, Every: drawgate.Day, Amount: 60},
		{Name: "n", Kind: drawgate.Concurrency, Amount: 60},
	} {
		plan := compile(t, l.Name, l)
		tk := takeOf(plan, "k", 30)
		if l.Kind == drawgate.Concurrency {
			tk = held(tk, "id", time.Hour)
		}
		d := take(t, s, tk)
		needs := time.UnixMicro(d.First.Limits[0].ResetAt)
		key := redisstore.KeyOf("drawgate", tk.Buckets[0].Key)
		ttl, need := pttl(t, c, key), needs.Sub(d.At())
		if ttl < need-time.Second || ttl > need+need/4+2*time.Minute {
			t.Errorf("%v: the key lives for %v, needed for %v", l.Kind, ttl, need)
		}
		if l.Kind == drawgate.Concurrency {
			continue
		}
		// A TTL that was shortened by hand shows that a further take leaves it alone while it is
		// long enough by the header.
		if err := c.Do(t.Context(), c.B().Expire().Key(key).Seconds(20).Build()).Error(); err != nil {
			t.Fatal(err)
		}
		clock.advance(time.Second)
		take(t, s, takeOf(plan, "k", 1))
		if ttl := pttl(t, c, key); ttl > 20*time.Second {
			t.Errorf("%v: the TTL is set by each take", l.Kind)
		}
		clock.advance(need * 5 / 4)
		clock.advance(2 * time.Minute)
		take(t, s, takeOf(plan, "k", 1))
		if ttl := pttl(t, c, key); ttl < 30*time.Second {
			t.Errorf("%v: the TTL ran short: %v", l.Kind, ttl)
		}
	}
}

// TestExpiredKeys count as unused, all of them: their buckets are full, and what was held there is
// gone.
//
// req: A7, A9
func TestExpiredKeys(t *testing.T) {
	t.Parallel()
	c, clock := client(t, redistest.Start(t)), newClock()
	s := redisstore.NewWithClock(c, nil, clock.now)
	for _, l := range []drawgate.Limit{
		{Name: "b", Kind: drawgate.Bucket, Window: time.Minute, Amount: 60},
		{Name: "r", Kind: drawgate.Rolling, Window: time.Hour, Amount: 60},
		{Name: "d", Kind: drawgate.Calendar, Every: drawgate.Day, Amount: 60},
		{Name: "n", Kind: drawgate.Concurrency, Amount: 60},
	} {
		plan := compile(t, l.Name, l)
		all := func(id string) store.Take { return held(takeOf(plan, "k", 60), id, time.Hour) }
		if d := take(t, s, all("first")); !d.Allowed {
			t.Fatalf("%v: %v", l.Kind, d.Fail)
		}
		if d := take(t, s, all("second")); d.Allowed {
			t.Errorf("%v: there was more", l.Kind)
		}
		expire(t, c, redisstore.KeyOf("drawgate", all("").Buckets[0].Key))
		if d := take(t, s, all("third")); !d.Allowed || d.First.Limits[0].Remaining != 0 {
			t.Errorf("%v, expired: %v, %d remain", l.Kind, d.Fail, d.First.Limits[0].Remaining)
		}
		if d := take(t, s, all("fourth")); d.Allowed {
			t.Errorf("%v: there was more after the key had expired", l.Kind)
		}
		if o := settle(t, s, store.Settlement{
			Op: store.OpCancel, ID: "first",
			Buckets: all("first").Buckets,
		}); !o.Gone {
			t.Errorf("%v: what was held before is not gone", l.Kind)
		}
	}
}

// expire makes the server let a key expire, and waits until it has.
func expire(t *testing.T, c rueidis.Client, key string) {
	t.Helper()
	if n, err := c.Do(t.Context(), c.B().Pexpire().Key(key).Milliseconds(1).Build()).AsInt64(); err != nil || n != 1 {
		t.Fatalf("no key %q to expire: %v", key, err)
	}
	for {
		n, err := c.Do(t.Context(), c.B().Exists().Key(key).Build()).AsInt64()
		if err != nil {
			t.Fatal(err)
		}
		if n == 0 {
			return
		}
	}
}

// TestOldLimitsAreDropped lets a policy change its window many times while its bucket is never
// idle.
func TestOldLimitsAreDropped(t *testing.T) {
	t.Parallel()
	c, clock := client(t, redistest.Start(t)), newClock()
	s := redisstore.NewWithClock(c, nil, clock.now)
	key := redisstore.KeyOf("drawgate", store.Key{Policy: "p", Name: "k"})
	for i := range 100 {
		plan := compile(t, "p",
			drawgate.Limit{
				Name: "changing", Kind: drawgate.Rolling, Window: time.Duration(1000+i) * time.Millisecond,
				Amount: 10, Precision: drawgate.Exact,
			},
			drawgate.Limit{Name: "steady", Kind: drawgate.Calendar, Every: drawgate.Month, Amount: 1000},
		)
		for range 2 {
			if d := take(t, s, takeOf(plan, "k", 1, 1)); !d.Allowed {
				t.Fatal(d.Fail)
			}
			clock.advance(100 * time.Millisecond)
		}
	}
	n, err := c.Do(t.Context(), c.B().Hlen().Key(key).Build()).AsInt64()
	size, err2 := c.Do(t.Context(), c.B().Hstrlen().Key(key).Field("h").Build()).AsInt64()
	if err != nil || err2 != nil || n > 40 || size > 2000 {
		t.Errorf("%d fields, a header of %d bytes; %v, %v", n, size, err, err2)
	}
}

// TestEntriesAreDropped checks that a rolling limit leaves no entry behind.
//
// req: D11
func TestEntriesAreDropped(t *testing.T) {
	t.Parallel()
	c, clock := client(t, redistest.Start(t)), newClock()
	s := redisstore.NewWithClock(c, nil, clock.now)
	plan := compile(t, "p", drawgate.Limit{Name: "r", Kind: drawgate.Rolling, Window: time.Second, Amount: 1_000_000})
	key := redisstore.KeyOf("drawgate", store.Key{Policy: "p", Name: "k"})
	for i := range 3000 {
		take(t, s, takeOf(plan, "k", 1))
		clock.advance(time.Millisecond)
		if i%500 == 499 {
			if n, err := c.Do(t.Context(), c.B().Hlen().Key(key).Build()).AsInt64(); err != nil || n > 128+4 {
				t.Errorf("%d fields after %d takes, %v; want at most 132", n, i+1, err)
			}
		}
	}
	clock.advance(time.Minute)
	take(t, s, takeOf(plan, "k", 1))
	if n, err := c.Do(t.Context(), c.B().Hlen().Key(key).Build()).AsInt64(); err != nil || n != 2 {
		t.Errorf("%d fields after a pause, %v; want the header and the history", n, err)
	}
}

// TestList lists keys of all shapes, of one policy of one tenant only.
func TestList(t *testing.T) {
	t.Parallel()
	s := open(t, redistest.Start(t), &redisstore.Options{Prefix: "rl*[x]"})
	plan := day(t, 10)
	var want []string
	for i := range 1200 {
		want = append(want, fmt.Sprint("k", i))
	}
	want = append(want, "", ":", "%", "a:b", "*", strings.Repeat("long", 100))
	slices.Sort(want)
	for _, tenant := range []string{"t", "t:day", strings.Repeat("T", 100)} {
		batch := make([]store.Take, len(want))
		for i, name := range want {
			batch[i] = takeOf(plan, name, 1)
			batch[i].Buckets[0].Key.Tenant = tenant
		}
		out := make([]store.Verdict, len(batch))
		if err := s.Take(t.Context(), batch, out); err != nil {
			t.Fatal(err)
		}
		var got []string
		err := s.List(t.Context(), tenant, "day", func(k store.Key) bool {
			if k.Tenant != tenant || k.Policy != "day" {
				t.Errorf("listed %+v", k)
			}
			got = append(got, k.Name)
			return true
		})
		slices.Sort(got)
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("%d of %d keys were listed, %v", len(got), len(want), err)
		}
	}
}
