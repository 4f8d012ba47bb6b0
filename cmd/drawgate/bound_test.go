package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/config"
	"github.com/drawgate/drawgate/engine"
	"github.com/drawgate/drawgate/engine/rules"
	"github.com/drawgate/drawgate/internal/needs"
	"github.com/drawgate/drawgate/internal/redistest"
	"github.com/drawgate/drawgate/store"
	"github.com/drawgate/drawgate/store/guard"
	"github.com/drawgate/drawgate/store/memstore"
	"github.com/drawgate/drawgate/store/redisstore"
)

// boundInstances is how many processes share the limits.
const boundInstances = 3

// boundFile has a policy for each case. WINDOW is a minute, or a day if real time passes. The last
// two overrides and rules are two worst cases: a bucket that fills fast, and one that holds much.
const boundFile = `
store: redis://localhost
instances: 3
policies:
  rolling:          {fallback: share, limits: [{name: l, rolling: WINDOW, amount: 60, headroom: 10%}]}
  rolling-rule:     {fallback: share, limits: [{name: l, rolling: WINDOW, amount: 18}]}
  rolling-override: {fallback: share, limits: [{name: l, rolling: WINDOW, amount: 18}], overrides: [{key: "vip*", limits: {l: 57}}, {key: poor, limits: {l: 2}}]}
  bucket:           {fallback: share, limits: [{name: l, bucket: WINDOW, amount: 60, burst: 30}]}
  bucket-rule:      {fallback: share, limits: [{name: l, bucket: WINDOW, amount: 18, burst: 18}]}
  bucket-override:
    fallback: share
    limits: [{name: l, bucket: WINDOW, amount: 18}]
    overrides: [{key: fast, limits: {l: {amount: 600, burst: 6}}}, {key: deep, limits: {l: {amount: 6, burst: 300}}}]
  bucket-rules:     {fallback: share, limits: [{name: l, bucket: WINDOW, amount: 6, burst: 6}]}
  covered:
    fallback: share
    limits: [{name: l, rolling: WINDOW, amount: 900}]
    overrides: [{key: "*", limits: {l: 30}}]
  shadow:           {fallback: share, limits: [{name: l, rolling: WINDOW, amount: 30}]}
rules:
  - {name: rolling, match: {path: /rolling}, apply: [{policy: rolling-rule, key: user, limits: {l: 57}}]}
  - {name: bucket,  match: {path: /bucket},  apply: [{policy: bucket-rule, key: user, limits: {l: {amount: 60, burst: 57}}}]}
  - {name: fast,    match: {path: /fast},    apply: [{policy: bucket-rules, key: user, limits: {l: {amount: 600, burst: 6}}}]}
  - {name: deep,    match: {path: /deep},    apply: [{policy: bucket-rules, key: user, limits: {l: {amount: 6, burst: 300}}}]}
  - {name: shadow,  match: {path: /shadow},  apply: [{policy: shadow, key: user, limits: {l: 900}}], shadow: true}
`

// way is how a bucket is used up: requests are made in turn, and their limits admit most units at
// once, and rate more units per window.
type way struct {
	most, rate int64
	requests   []*engine.Request
}

// boundCases are the ways to use up each policy, each with a bucket of its own.
var boundCases = map[string][]way{
	"rolling":      {{54, 0, []*engine.Request{named("rolling", "k")}}},
	"rolling-rule": {{57, 0, []*engine.Request{named("rolling-rule", "k"), at("/rolling")}}},
	"rolling-override": {
		{57, 0, []*engine.Request{named("rolling-override", "vip1")}},
		{2, 0, []*engine.Request{named("rolling-override", "poor")}},
		{18, 0, []*engine.Request{named("rolling-override", "k")}},
	},
	"bucket":      {{30, 60, []*engine.Request{named("bucket", "k")}}},
	"bucket-rule": {{57, 60, []*engine.Request{at("/bucket"), named("bucket-rule", "k")}}},
	"bucket-override": {
		{6, 600, []*engine.Request{named("bucket-override", "fast")}},
		{300, 6, []*engine.Request{named("bucket-override", "deep")}},
	},
	"bucket-rules": {{300, 600, []*engine.Request{at("/fast"), at("/deep")}}},
	"covered":      {{30, 0, []*engine.Request{named("covered", "k")}}},
	"shadow":       {{30, 0, []*engine.Request{at("/shadow"), named("shadow", "k")}}},
}

// named asks for a bucket by name, and at as the rules say, for user k.
func named(policy, key string) *engine.Request {
	return &engine.Request{Asks: []engine.Ask{{Policy: policy, Key: key}}}
}

func at(path string) *engine.Request {
	return &engine.Request{Attributes: &rules.Attributes{Method: "GET", Path: path, User: "k"}}
}

// fleet is the processes that share a store.
type fleet struct {
	t       *testing.T
	engines []*engine.Engine
	down    []*atomic.Bool
}

// switched is a store that can be cut off from a process.
type switched struct {
	drawgate.Store

	down *atomic.Bool
}

func (s switched) fail(op string) error {
	if s.down.Load() {
		return &drawgate.StoreError{Store: "test", Op: op, Err: errors.New("connection refused")}
	}
	return nil
}

func (s switched) Take(ctx context.Context, batch []store.Take, out []store.Verdict) error {
	return errors.Join(s.fail("take"), ifUp(s, func() error { return s.Store.Take(ctx, batch, out) }))
}

func (s switched) Settle(ctx context.Context, batch []store.Settlement, out []store.Outcome) error {
	return errors.Join(s.fail("settle"), ifUp(s, func() error { return s.Store.Settle(ctx, batch, out) }))
}

func (s switched) Peek(ctx context.Context, b []store.BucketCost, priority int8, out []store.State) error {
	return errors.Join(s.fail("peek"), ifUp(s, func() error { return s.Store.Peek(ctx, b, priority, out) }))
}

func ifUp(s switched, f func() error) error {
	if s.down.Load() {
		return nil
	}
	return f()
}

// newFleet starts processes, each with a connection of its own.
func newFleet(t *testing.T, c *config.Config, connect func() drawgate.Store, opts guard.Options) *fleet {
	t.Helper()
	f := &fleet{t: t}
	opts.Instances = boundInstances
	for range boundInstances {
		s := switched{connect(), &atomic.Bool{}}
		g := guard.New(s, &opts)
		e, err := engine.New(g.Full(), c.Engine(), &engine.Options{StoreTimeout: time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { e.Close(); g.Close() })
		f.engines, f.down = append(f.engines, e), append(f.down, s.down)
	}
	return f
}

// rush lets processes take until none of them gets any more, and returns how much they got. The
// first request is repeated at the end, because a bucket refills until it is next looked at.
func (f *fleet) rush(w way, processes ...int) (n int64) {
	f.t.Helper()
	for _, p := range processes {
		for more := true; more; {
			more = false
			for _, r := range append(slices.Clip(w.requests), w.requests[0]) {
				res, err := f.engines[p].Take(f.t.Context(), r)
				if err != nil {
					f.t.Fatal(err)
				}
				if res.Decision.Allowed && len(res.Applied) == 1 && !res.Applied[0].Shadow {
					n, more = n+1, true
				}
			}
		}
	}
	return n
}

// most returns the most that processes get in any window if they take all they can for several
// windows.
func (f *fleet) most(w way, window time.Duration, processes ...int) (most int64) {
	f.t.Helper()
	const windows = 4
	ticks := needs.Rounds(100, 300, 300)
	var got []int64
	for i := range windows * ticks {
		got = append(got, f.rush(w, processes...))
		sum := int64(0)
		for _, n := range got[max(0, i+1-ticks):] {
			sum += n
		}
		most = max(most, sum)
		time.Sleep(window / time.Duration(ticks))
	}
	return most
}

// While the store is unavailable to real guards, processes that ask for as much as they can get are
// admitted at least 90 % of what `drawgate bound` prints, and never more. The amounts may be those
// of a policy, a rule or an override.
//
// req: A10, D10, E7
func TestAdmissionsReachTheBound(t *testing.T) {
	needs.NoRace(t) // guards alone look for their stores for hours
	t.Parallel()
	const window = time.Minute
	c, lines := bounds(t, "1m")
	for policy, ways := range boundCases {
		line := lines[policy]
		t.Run(policy, func(t *testing.T) {
			t.Parallel()
			var extra, partly, most int64
			for _, w := range ways {
				most = max(most, w.most)
				synctest.Test(t, func(t *testing.T) {
					st := memstore.New(nil)
					f := newFleet(t, c, func() drawgate.Store { return st }, guard.Options{Failures: 1})
					time.Sleep(3 * time.Hour) // nothing counts any more that former processes may have been admitted
					start := time.Now()
					n := f.rush(w, 0)
					for _, a := range f.down {
						a.Store(true)
					}
					n += f.rush(w, 0, 1, 2)
					if took := time.Since(start); took != 0 {
						t.Fatalf("%v passed, want none: the count is of one instant", took)
					}
					extra = max(extra, n-w.most)
					time.Sleep(window)
					if n := f.most(w, window, 0, 1, 2); n > w.most+w.rate+*line.Later {
						t.Errorf("%d admitted in a later window, want at most %d", n, w.most+w.rate+*line.Later)
					}
				})
				synctest.Test(t, func(t *testing.T) {
					st := memstore.New(nil)
					f := newFleet(t, c, func() drawgate.Store { return st }, guard.Options{Failures: 1})
					time.Sleep(3 * time.Hour)
					f.down[1].Store(true)
					f.down[2].Store(true)
					partly = max(partly, f.most(w, window, 0, 1, 2)-w.most-w.rate)
				})
			}
			reaches(t, "extra", extra, *line.Extra)
			reaches(t, "partly", partly, *line.Partly)
			if line.Most != most {
				t.Errorf("the limit admits %d, want %d", line.Most, most)
			}
		})
	}
}

// The same holds for a Redis server that is killed. With a window of a day nothing becomes free
// during the test.
//
// req: A10, E7
func TestAdmissionsReachTheBoundWithoutRedis(t *testing.T) {
	t.Parallel()
	c, lines := bounds(t, "24h")
	for policy, ways := range boundCases {
		t.Run(policy, func(t *testing.T) {
			t.Parallel()
			var extra int64
			for _, w := range ways {
				redis := redistest.Start(t)
				f := newFleet(t, c, func() drawgate.Store {
					s, err := redisstore.Open(redis.URL(), nil)
					if err != nil {
						t.Fatal(err)
					}
					return s
				}, guard.Options{Start: drawgate.StartFull, Timeout: 30 * time.Second})
				n := f.rush(w, 0)
				redis.Kill9()
				n += f.rush(w, 0, 1, 2)
				extra = max(extra, n-w.most)
			}
			reaches(t, "extra", extra, *lines[policy].Extra)
		})
	}
}

func reaches(t *testing.T, what string, got, bound int64) {
	t.Helper()
	if got > bound || 10*got < 9*bound {
		t.Errorf("%s: %d too many were admitted, want 90 to 100 %% of the %d that bound prints", what, got, bound)
	}
}

// bounds returns the configuration, and what `drawgate bound` prints for it, by policy.
func bounds(t *testing.T, window string) (*config.Config, map[string]excess) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "drawgate.yaml")
	if err := os.WriteFile(path, []byte(strings.ReplaceAll(boundFile, "WINDOW", window)), 0o600); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	a := &app{json: true, out: &out, errOut: &out}
	if err := a.bound([]string{path}, assumed{}); err != nil {
		t.Fatal(err)
	}
	var list []excess
	if err := json.Unmarshal(out.Bytes(), &list); err != nil {
		t.Fatal(err)
	}
	lines := map[string]excess{}
	for _, l := range list {
		if _, twice := lines[l.Policy]; twice {
			t.Errorf("got two lines for one limit, want one: %s", fmt.Sprint(l))
		}
		lines[l.Policy] = l
	}
	c, err := config.Resolve(nil, config.Flags{Config: path})
	if err != nil {
		t.Fatal(err)
	}
	return c, lines
}
