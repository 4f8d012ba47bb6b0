//go:build unix

package main

import (
	"strings"
	"testing"

	"github.com/drawgate/drawgate/api"
	"github.com/drawgate/drawgate/internal/redistest"
)

// What a Redis server lost and has again is in the log of the server and in its metrics.
//
// req: C12, E1
func TestServerCountsWhatItRecovered(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	b := newBench(t)
	b.write("drawgate.yaml", "policies:\n  api: {limits: [{name: rph, rolling: 1h, amount: 10}]}\ninstances: 1\nstore: "+
		redis.URL()+"\n")
	d := b.daemon()
	for range 3 {
		d.must(d.public+"/v1/take", take("api", "k"))
	}
	redis.Do("FLUSHALL")
	decoded[api.Answer](d, d.public+"/v1/take", take("api", "k"))
	d.log.await(t, `event=(store_recovered)`)
	if got := d.metric("drawgate_store_recovered_units_total"); got != 3 {
		t.Errorf("%v units were recovered, want 3", got)
	}
	a := decoded[api.Answer](d, d.public+"/v1/take", take("api", "k"))
	if r := a.Remaining; r != 5 {
		t.Errorf("%d of 10 are left after 5 takes, want 5", r)
	}
}

// Redis has no file to reset: whoever wants to begin with nothing used learns how.
func TestResetAllOnRedis(t *testing.T) {
	t.Parallel()
	b := newBench(t, "DRAWGATE_STORE="+redistest.Start(t).URL())
	out, err := b.command("reset", "--all", "--yes").CombinedOutput()
	if err == nil || !strings.Contains(string(out), "stop all programs that use redis://") {
		t.Errorf("%v %s", err, out)
	}
}
