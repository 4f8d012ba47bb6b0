//go:build unix

package main

import (
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/drawgate/drawgate/api"
	"github.com/drawgate/drawgate/internal/needs"
	"github.com/drawgate/drawgate/internal/redistest"
)

// uncountedLimit is a configuration that does not say how many servers there are.
const uncountedLimit = `
policies:
  api: {limits: [{name: rps, rolling: 1s, amount: 300}]}
store: `

// Three servers count each other. A server that has just started admits nothing when Redis stops.
// The bucket with the servers' slots is not listed. With DRAWGATE_LONG the servers run for a
// minute; then Redis stops for 10 s, each server admits its third, and a fourth that starts
// meanwhile admits nothing.
//
// req: A10, B11
func TestServersCountEachOther(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	long := needs.Long()
	var env []string
	if long {
		env = append(env, "DRAWGATE_STORE_TIMEOUT=50ms")
	}
	b := newBench(t, env...)
	b.write("drawgate.yaml", uncountedLimit+redis.URL()+"\n")
	var servers []*daemon
	for i := range 3 {
		d := b.daemon()
		servers = append(servers, d)
		d.log.await(t, `(instances are counted in the store)`)
		d.shows("drawgate_instances", float64(i+1))
	}
	last := servers[2]
	if may := last.metric("drawgate_instance_may_share"); may != 0 {
		t.Errorf("a server that has just started may share: %v", may)
	}
	if a := decoded[api.Answer](last, last.public+"/v1/take", take("api", "k")); !a.Allowed || a.Fallback {
		t.Errorf("with Redis: %+v", a)
	}
	apart := newBench(t, env...) // who has another prefix shares nothing
	apart.write("drawgate.yaml", uncountedLimit+redis.URL()+"\nprefix: apart\n")
	if d := apart.daemon(); d.metric("drawgate_instances") > 1 {
		t.Errorf("a server with another prefix counts %v, want itself alone", d.metric("drawgate_instances"))
	}
	if r := last.must(last.public+"/v1/buckets?policy=drawgate:instances", nil); r.code != http.StatusNotFound {
		t.Errorf("the bucket of the slots is shown: %d %s", r.code, r.body)
	}
	for _, path := range []string{"/v1/policies", "/v1/buckets?policy=api", "/metrics"} {
		if r := last.must(last.admin+path, nil); strings.Contains(r.body, "drawgate:instances") {
			t.Errorf("%s: got the policy of the instances, want it hidden: %s", path, r.body)
		}
	}
	if long {
		stopped(t, b, redis, servers)
		return
	}
	redis.Kill9()
	eventually(t, "open breaker", func() bool {
		if a := decoded[api.Answer](last, last.public+"/v1/take", take("api", "k")); a.Allowed && a.Fallback {
			t.Errorf("without Redis a server that has just started admits %+v", a)
		}
		return last.metric(`drawgate_store_breaker_state{state="open"}`) == 1
	})
	redis.Restart()
}

// stopped stops Redis for ten seconds. It counts what servers that have run for a while admit, and
// what a server that starts then admits.
func stopped(t *testing.T, b bench, redis *redistest.Server, servers []*daemon) {
	t.Helper()
	for _, d := range servers {
		d.shows("drawgate_instance_may_share", 1)
		d.shows("drawgate_instances", 3)
	}
	end := make(chan struct{})
	var all sync.WaitGroup
	var mu sync.Mutex
	admitted := make([][]time.Time, 4) // guarded by mu
	load := func(i int, d *daemon) {
		for range 4 {
			all.Go(func() {
				for ; ; time.Sleep(2 * time.Millisecond) {
					select {
					case <-end:
						return
					default:
					}
					if a := decoded[api.Answer](d, d.public+"/v1/take", take("api", "k")); a.Allowed {
						mu.Lock()
						admitted[i] = append(admitted[i], time.Now())
						mu.Unlock()
					}
				}
			})
		}
	}
	for i, d := range servers {
		load(i, d)
	}
	time.Sleep(3 * time.Second)
	redis.Stop()
	loss := time.Now()
	fourth := b.daemon()
	started := time.Since(loss)
	load(3, fourth)
	time.Sleep(time.Until(loss.Add(10 * time.Second)))
	close(end)
	all.Wait()
	redis.Continue()
	for i := range servers {
		from := slices.IndexFunc(admitted[i], func(at time.Time) bool { return at.Sub(loss) >= time.Second })
		if from < 0 {
			t.Fatalf("server %d admitted nothing", i)
		}
		first, counts := admitted[i][from], make([]int, 8)
		for _, at := range admitted[i][from:] {
			if k := int(at.Sub(first) / time.Second); k < len(counts) {
				counts[k]++
			}
		}
		t.Logf("server %d of 3, 300 a second: seconds from %v after the loss on: %v", i+1,
			first.Sub(loss).Round(time.Millisecond), counts)
		for _, n := range counts {
			if n < 99 || n > 101 {
				t.Errorf("server %d admitted %d in a second, want a third of 300", i+1, n)
			}
		}
	}
	t.Logf("the fourth, which listened %v after the loss: %d", started.Round(time.Millisecond), len(admitted[3]))
	if len(admitted[3]) > 0 || started > 9*time.Second {
		t.Errorf("the fourth, which listened %v after the loss, admitted %d, want none", started, len(admitted[3]))
	}
	for _, d := range append(servers, fourth) {
		eventually(t, "decision by Redis", func() bool {
			return !decoded[api.Answer](d, d.public+"/v1/take", take("api", "other")).Fallback
		})
		d.shows("drawgate_instance_may_share", 1)
		d.shows("drawgate_instances", 4)
	}
}
