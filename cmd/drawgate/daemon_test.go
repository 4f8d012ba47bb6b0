//go:build unix

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	ratelimit "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/drawgate/drawgate/internal/sleep"
)

// daemon is a drawgate serve that runs.
type daemon struct {
	t    *testing.T
	cmd  *exec.Cmd
	log  *syncBuffer
	done chan struct{} // closed when it has ended
	http *http.Client

	public, admin string // addresses of the listeners: http://host:port
	rpc           string // and of Envoy's: host:port
	killed        bool
}

// endTime is how long a test waits for a server to end, or for something to happen. It is longer
// than a server waits for running requests.
const endTime = 2 * time.Minute

// daemon starts a server with drawgate.yaml on free ports. The server is told to end when the test
// ends, and must exit with code 0.
func (b bench) daemon() *daemon {
	b.t.Helper()
	d := b.launch()
	d.listens()
	return d
}

// launch is daemon for a test that does not wait until the server listens.
func (b bench) launch() *daemon {
	b.t.Helper()
	return b.background("serve", "--config", "drawgate.yaml", "--listen", "127.0.0.1:0", "--grpc", "127.0.0.1:0")
}

// background starts any command that ends with code 0 when it is told to end.
func (b bench) background(args ...string) *daemon {
	b.t.Helper()
	return b.begin(b.command(args...))
}

// begin starts a command in the background.
func (b bench) begin(cmd *exec.Cmd) *daemon {
	b.t.Helper()
	cmd.Cancel, cmd.WaitDelay = func() error { return cmd.Process.Signal(syscall.SIGTERM) }, endTime
	d := &daemon{
		t: b.t, cmd: cmd, log: &syncBuffer{}, done: make(chan struct{}),
		http: &http.Client{Transport: &http.Transport{}, Timeout: time.Minute},
	}
	cmd.Stderr = d.log
	if err := cmd.Start(); err != nil {
		b.t.Fatal(err)
	}
	go func() { defer close(d.done); _ = cmd.Wait() }() // the exit code says it
	b.t.Cleanup(func() {
		d.http.CloseIdleConnections()
		d.ended()
	})
	return d
}

// listens waits until the server listens.
func (d *daemon) listens() {
	d.t.Helper()
	d.public = d.log.await(d.t, `listening on (https?://[^"]+)`)
	d.admin = d.log.await(d.t, `administration at (https?://[^"]+)`)
	d.rpc = d.log.await(d.t, `grpc://([^"]+)`)
}

// ended waits for the end of a server that was told to end. The exit code also shows if the race
// detector found something.
func (d *daemon) ended() {
	d.t.Helper()
	<-d.done
	if code := d.cmd.ProcessState.ExitCode(); code != 0 && !d.killed {
		d.t.Errorf("got exit code %d, want 0", code)
	}
	if d.t.Failed() {
		d.t.Logf("it said:\n%s", d.log)
	}
}

// kill ends the server as kill -9 does.
func (d *daemon) kill() {
	d.t.Helper()
	d.killed = true
	d.signal(syscall.SIGKILL)
	<-d.done
}

func (d *daemon) signal(sig os.Signal) {
	d.t.Helper()
	if err := d.cmd.Process.Signal(sig); err != nil {
		d.t.Fatal(err)
	}
}

// reply is what a server answers.
type reply struct {
	code   int
	header http.Header
	body   string
}

// ask sends what body says as JSON; a nil one is a GET. Headers are written as "Name: value".
func (d *daemon) ask(url string, body any, headers ...string) (r reply, err error) {
	method, text := http.MethodGet, ""
	if body != nil {
		b, err := json.Marshal(body)
		if err != nil {
			return r, err
		}
		method, text = http.MethodPost, string(b)
	}
	req, err := http.NewRequestWithContext(d.t.Context(), method, url, strings.NewReader(text))
	if err != nil {
		return r, err
	}
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		req.Header.Set(name, value)
	}
	resp, err := d.http.Do(req)
	if err != nil {
		return r, err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	return reply{resp.StatusCode, resp.Header, string(b)}, err
}

// must is ask, and fails the test if there is no answer.
func (d *daemon) must(url string, body any, headers ...string) reply {
	d.t.Helper()
	r, err := d.ask(url, body, headers...)
	if err != nil {
		d.t.Fatal(err)
	}
	return r
}

// decoded is must, with the answer decoded.
func decoded[A any](d *daemon, url string, body any) (a A) {
	d.t.Helper()
	r := d.must(url, body)
	if err := json.Unmarshal([]byte(r.body), &a); err != nil {
		d.t.Fatalf("%s: got %d %s, which cannot be decoded: %v", url, r.code, r.body, err)
	}
	return a
}

// metric returns the value of a series, named as the metrics write it; -1 if there is none.
func (d *daemon) metric(series string) float64 {
	d.t.Helper()
	for line := range strings.Lines(d.must(d.admin+"/metrics", nil).body) {
		if text, ok := strings.CutPrefix(line, series+" "); ok {
			v, err := strconv.ParseFloat(strings.TrimSpace(text), 64)
			if err != nil {
				d.t.Fatal(err)
			}
			return v
		}
	}
	return -1
}

// shows waits until a series has at least that value.
func (d *daemon) shows(series string, least float64) {
	d.t.Helper()
	eventually(d.t, fmt.Sprint(series, " of at least ", least), func() bool { return d.metric(series) >= least })
}

// eventually waits until something holds, which it looks at ever more seldom.
func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), endTime)
	defer cancel()
	for pause := 5 * time.Millisecond; !holds(); pause = min(2*pause, 200*time.Millisecond) {
		if !sleep.For(ctx, pause) {
			t.Fatalf("there is no %s", what)
		}
	}
}

// envoy returns a client like Envoy. Without credentials it does not use TLS.
func (d *daemon) envoy(c credentials.TransportCredentials) ratelimit.RateLimitServiceClient {
	d.t.Helper()
	if c == nil {
		c = insecure.NewCredentials()
	}
	conn, err := grpc.NewClient(d.rpc, grpc.WithTransportCredentials(c))
	if err != nil {
		d.t.Fatal(err)
	}
	d.t.Cleanup(func() { conn.Close() })
	return ratelimit.NewRateLimitServiceClient(conn)
}

// short returns a context for a call that must be answered soon.
func short(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), endTime)
	t.Cleanup(cancel)
	return ctx
}
