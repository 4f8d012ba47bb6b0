//go:build linux

package main

import (
	"fmt"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/drawgate/drawgate/api"
	"github.com/drawgate/drawgate/client"
	"github.com/drawgate/drawgate/internal/needs"
)

// flood says how many distinct keys a server is asked about, and how many buckets it may keep.
func flood() (keys, buckets int) {
	if needs.Long() {
		return 10_000_000, 200_000
	}
	return 50_000, 5_000
}

// Memory of a bucket, with its record and its index entry, and of a program without buckets.
const (
	bytesPerBucket = 1500
	bytesAtRest    = 64 << 20
	bytesOfProgram = 16 << 20 // its data, and what Go's memory limit does not bound
)

// A flood of distinct keys and tenants does not make the server forget a bucket that still limits,
// or grow beyond its configured size. New keys for which there is no room get the answer that
// nothing was decided.
func TestFloodOfKeysForgetsNoBucketThatLimits(t *testing.T) {
	needs.NoRace(t)
	keys, buckets := flood()
	b := newBench(t)
	b.write("drawgate.yaml", fmt.Sprintf(`
store: "memory:"
max_buckets: %d
policies:
  api: {limits: [{name: rpd, rolling: 24h, amount: 2}]}
`, buckets))
	cmd := b.command("serve", "--config", "drawgate.yaml", "--listen", "127.0.0.1:0")
	most := buckets*bytesPerBucket + bytesAtRest
	cmd.Env = append(cmd.Environ(), fmt.Sprint("GOMEMLIMIT=", most))
	var log syncBuffer
	cmd.Stderr = &log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		_ = cmd.Wait()
		if t.Failed() {
			t.Logf("the server said:\n%s", log.String())
		}
	})
	c, err := client.New(log.await(t, `listening on (http://[^"]+)`), &client.Options{Timeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	one := func(tenant, key string) api.Answer {
		t.Helper()
		a, err := c.Take(t.Context(), api.Take{Bucket: api.Bucket{Policy: "api", Tenant: tenant, Key: key}})
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	for range 2 {
		if !one("", "victim").Allowed {
			t.Fatal("the first take was refused, want it allowed")
		}
	}
	decided, refused := send(t, c, keys)
	if one("", "victim").Allowed {
		t.Error("a take beyond the limit was allowed: the bucket was forgotten, want it kept")
	}
	if decided+refused != keys || decided < buckets-1 || decided > buckets+100 {
		t.Errorf("%d were decided and %d not, of %d keys, with room for %d buckets", decided, refused, keys, buckets)
	}
	rss := memory(t, cmd.Process.Pid)
	if rss > most+bytesOfProgram {
		t.Errorf("the server took %d MB, with a memory limit of %d", rss>>20, most>>20)
	}
	t.Logf("%d keys: %d decided, %d not; at most %d MB, with a memory limit of %d", keys, decided, refused, rss>>20,
		most>>20)
}

// send asks about so many keys, each with its own tenant or with none. It returns how many were
// decided, and for how many there was no room.
func send(t *testing.T, c *client.Client, keys int) (decided, refused int) {
	t.Helper()
	var mu sync.Mutex
	var wg sync.WaitGroup
	batches := make(chan int)
	for range 4 {
		wg.Go(func() {
			for first := range batches {
				takes := make([]api.Take, api.MaxTakes)
				for i := range takes {
					takes[i].Policy, takes[i].Key = "api", fmt.Sprint("key-", first+i)
					if i%2 == 1 {
						takes[i].Tenant = fmt.Sprint("tenant-", first+i)
					}
				}
				answers, err := c.TakeBatch(t.Context(), takes)
				if err != nil {
					t.Error(err)
					continue
				}
				mu.Lock()
				for i := range answers {
					switch a := &answers[i]; {
					case a.Allowed:
						decided++
					case a.Error != nil && a.Error.Code == api.CodeStoreUnavailable:
						refused++
					default:
						t.Errorf("got %+v, want it allowed, or not decided for lack of room", a)
					}
				}
				mu.Unlock()
			}
		})
	}
	for first := 0; first < keys; first += api.MaxTakes {
		batches <- first
	}
	close(batches)
	wg.Wait()
	return decided, refused
}

// memory returns the peak memory of a process, in bytes. Pages of its program do not count: how
// many are in memory is up to the system.
func memory(t *testing.T, pid int) int {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	of := func(field string) int {
		_, rest, _ := strings.Cut(string(text), "\n"+field+":")
		var kb int
		if _, err := fmt.Sscan(rest, &kb); err != nil {
			t.Fatalf("%s: %v", field, err)
		}
		return kb << 10
	}
	return of("VmHWM") - of("RssFile")
}
