//go:build unix

package main

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	ratelimit "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"

	"github.com/drawgate/drawgate/api"
	"github.com/drawgate/drawgate/internal/redistest"
	"github.com/drawgate/drawgate/rls"
)

// slow is how late a slow store answers: late enough for the server to be told to end meanwhile,
// but within the time that it gives running requests.
const slow = 2 * time.Second

// A server that is told to end finishes running requests, over HTTP and over gRPC. Takes that wait
// are told to ask another server. The exit code is 0.
func TestServeFinishesRunningRequests(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	proxy := redistest.NewProxy(t, redis.Addr)
	b := newBench(t)
	b.write("drawgate.yaml", `
store: redis://`+proxy.Addr+`
store_timeout: 20s
store_batches: false # the second take is on its way as well
policies:
  api: {limits: [{name: rpd, rolling: 24h, amount: 10}]}
  slots: {limits: [{name: slots, concurrency: 1}]}
rules: [{apply: [{policy: api, key: 'attr("who")'}]}]
`)
	d := b.daemon()
	c := d.envoy(nil)
	slot := take("slots", "k")
	slot.HoldMS = 600_000
	decoded[api.Answer](d, d.public+"/v1/take", slot)
	slot.WaitMS = 600_000
	waiting := d.later(slot)
	d.shows("drawgate_queue_length", 1)
	// the connections are there, and the script is known
	if _, err := c.ShouldRateLimit(short(t), hit("who", "first")); err != nil {
		t.Fatal(err)
	}
	before := keys(t, redis.Addr)
	proxy.Delay.Store(int64(slow))
	overHTTP := d.later(take("api", "second"))
	overGRPC := make(chan error, 1)
	go func() {
		a, err := c.ShouldRateLimit(short(t), hit("who", "third"))
		if err == nil && a.GetOverallCode() != ratelimit.RateLimitResponse_OK {
			err = fmt.Errorf("it was refused: %v", a)
		}
		overGRPC <- err
	}()
	eventually(t, "take that the store is asked for", func() bool { return keys(t, redis.Addr) == before+2 })
	d.signal(syscall.SIGTERM)
	if r := <-waiting; r.code != 503 || !strings.Contains(r.body, string(api.CodeClosing)) {
		t.Errorf("a take that waited: got %d %s", r.code, r.body)
	}
	if r := <-overHTTP; r.code != 200 || !strings.Contains(r.body, `"allowed":true`) ||
		strings.Contains(r.body, "fallback") {
		t.Errorf("a running take over HTTP: got %d %s", r.code, r.body)
	}
	if err := <-overGRPC; err != nil {
		t.Errorf("a running take over gRPC: got %v", err)
	}
	d.ended()
	if !strings.Contains(d.log.String(), "msg=stopped") {
		t.Error("the log does not say that the server has stopped")
	}
}

// later takes in the background, and returns a channel with the answer.
func (d *daemon) later(t api.Take) <-chan reply {
	answer := make(chan reply, 1)
	go func() {
		r, err := d.ask(d.public+"/v1/take", t)
		if err != nil {
			d.t.Error(err)
		}
		answer <- r
	}()
	return answer
}

// keys returns how many keys a Redis has.
func keys(t *testing.T, addr string) int {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	fmt.Fprint(c, "DBSIZE\r\n")
	line, err := bufio.NewReader(c).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	n, err := strconv.Atoi(strings.TrimSpace(strings.TrimPrefix(line, ":")))
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// A server that is stopped before it begins to serve ends without an error.
func TestStoppedBeforeItBegan(t *testing.T) {
	t.Parallel()
	ctx, stop := context.WithCancel(t.Context())
	stop()
	v := &service{envoy: rls.New(nil, nil)}
	for range 100 { // the listener's goroutine comes before or after the stop
		ln, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		if err := v.serveEnvoy(ctx, ln); err != nil {
			t.Fatal(err)
		}
	}
}
