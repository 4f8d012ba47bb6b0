package main

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/drawgate/drawgate/benchmarks/internal/sysx"
)

// server is a program that is measured.
type server struct {
	name  string
	note  string
	http  bool // otherwise Envoy's rate limit service
	redis bool
	start func(at place) (*exec.Cmd, error)
}

// place is where a server runs.
type place struct {
	dir   string // its own
	addr  string // where it is to listen
	redis string
}

const redisPort = 7393

var servers = []server{
	{name: "floor-noop", note: "grpc-go, generated types, no decision", start: noop},
	{name: "drawgate", note: "memory, metrics on", start: ours("memory:", usual)},
	{name: "drawgate-bare", note: "memory, metrics off", start: ours("memory:", bare)},
	{name: "drawgate-redis", note: "Redis, metrics on", redis: true, start: ours("", usual)},
	{name: "drawgate-redis-leased", note: "Redis, leases, metrics on", redis: true, start: ours("", leased)},
	{name: "envoy-ratelimit", note: "defaults, Redis", redis: true, start: envoyRatelimit},
	{name: "floor-noop-http", note: "net/http, the same bytes, no decision", http: true, start: noopHTTP},
	{name: "drawgate-http", note: "memory, metrics on", http: true, start: ours("memory:", usual)},
	{name: "drawgate-http-bare", note: "memory, metrics off", http: true, start: ours("memory:", bare)},
}

// limits is what all are configured with, in the format of envoyproxy/ratelimit: one that no run
// reaches.
const limits = `domain: bench
descriptors:
  - key: user
    rate_limit: {unit: second, requests_per_unit: 4000000000}
`

func noop(at place) (*exec.Cmd, error) {
	return exec.Command(program("noopserver"), "-grpc", at.addr), nil //nolint:gosec,noctx // ours; it is stopped by its process id
}

// answer is what drawgate answers to a take of the benchmark, to the byte but for digits.
const answer = `{"allowed":true,"retry_after_ms":0,"reset_at":"2026-11-21T10:20:30.123456Z","remaining":999999999,"limits":[{"bucket":0,"policy":"bench","name":"rps","unit":"requests","amount":1000000000,"most":1000000000,"remaining":999999999,"retry_after_ms":0,"reset_at":"2026-11-21T10:20:30.123456Z","refused":false}]}
`

func noopHTTP(at place) (*exec.Cmd, error) {
	path := filepath.Join(at.dir, "answer.json")
	if err := os.WriteFile(path, []byte(answer), 0o600); err != nil {
		return nil, err
	}
	return exec.Command(program("noopserver"), "-http", at.addr, "-answer", path), nil //nolint:gosec,noctx // ours
}

// way is what is measured of ours.
type way uint8

const (
	usual way = iota
	bare      // without metrics
	leased
)

// ours is drawgate serve. An empty store is the Redis that was started.
func ours(store string, way way) func(place) (*exec.Cmd, error) {
	return func(at place) (*exec.Cmd, error) {
		url := store
		if url == "" {
			url = "redis://" + at.redis
		}
		if err := os.WriteFile(filepath.Join(at.dir, "limits.yaml"), []byte(limits), 0o600); err != nil {
			return nil, err
		}
		config := fmt.Sprintf(`store: %q
instances: 1
policies:
  bench: {limits: [{name: rps, bucket: 1s, amount: 1000000000}]}
envoy: {configs: [limits.yaml], leased: %v}
telemetry: {metrics: %v}
`, url, way == leased, way != bare)
		if err := os.WriteFile(filepath.Join(at.dir, "drawgate.yaml"), []byte(config), 0o600); err != nil {
			return nil, err
		}
		args := []string{"serve", "--config", "drawgate.yaml", "--admin", "off", "--store-timeout", "1s"}
		if at.http() {
			args = append(args, "--listen", at.addr)
		} else {
			args = append(args, "--listen", "127.0.0.1:0", "--grpc", at.addr)
		}
		return exec.Command(program("drawgate"), args...), nil //nolint:gosec,noctx // ours
	}
}

func (at place) http() bool { return strings.HasSuffix(at.dir, "-http") }

// envoyRatelimit is Envoy's own service.
func envoyRatelimit(at place) (*exec.Cmd, error) {
	dir := filepath.Join(at.dir, "current", "ratelimit", "config")
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return nil, err
	}
	if err := os.WriteFile(filepath.Join(dir, "bench.yaml"), []byte(limits), 0o600); err != nil {
		return nil, err
	}
	host, port, err := net.SplitHostPort(at.addr)
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(program("service_cmd")) //nolint:gosec,noctx // built from its module
	cmd.Env = append(os.Environ(), "GRPC_HOST="+host, "GRPC_PORT="+port, "HOST=127.0.0.1", "PORT=0",
		"DEBUG_HOST=127.0.0.1", "DEBUG_PORT=0",
		"LOG_LEVEL=error", "USE_STATSD=false", "RUNTIME_ROOT="+filepath.Join(at.dir, "current"),
		"RUNTIME_SUBDIRECTORY=ratelimit", "RUNTIME_WATCH_ROOT=false",
		"REDIS_SOCKET_TYPE=tcp", "REDIS_TYPE=SINGLE", "REDIS_URL="+at.redis, "BACKEND_TYPE=redis",
		"TRACING_ENABLED=false")
	return cmd, nil
}

func program(name string) string {
	path, err := filepath.Abs(filepath.Join(*bin, name))
	if err != nil {
		return name
	}
	return path
}

// running is a server that was started.
type running struct {
	addr   string
	dir    string
	server *sysx.Process
	redis  *sysx.Redis
}

// startTime is how long a server may take to listen, and settleTime how long it gets after that.
const startTime, settleTime = 15 * time.Second, 300 * time.Millisecond

// start starts a server on a free port, and waits until it listens.
func start(s server) (_ *running, err error) {
	r := &running{}
	defer func() {
		if err != nil {
			r.stop()
		}
	}()
	kind := "-grpc"
	if s.http {
		kind = "-http"
	}
	if r.dir, err = os.MkdirTemp("", "bench*"+kind); err != nil {
		return nil, err
	}
	at := place{dir: r.dir}
	if at.addr, err = sysx.Free(); err != nil {
		return nil, err
	}
	r.addr = at.addr
	if s.redis {
		if r.redis, err = sysx.StartRedis(redisPort); err != nil {
			return nil, err
		}
		at.redis = r.redis.Addr
	}
	cmd, err := s.start(at)
	if err != nil {
		return nil, err
	}
	cmd.Dir = r.dir
	if r.server, err = sysx.StartProcess(cmd, r.addr, startTime); err != nil {
		return nil, err
	}
	time.Sleep(settleTime)
	return r, nil
}

func (r *running) pids() []int {
	pids := []int{r.server.PID()}
	if r.redis != nil {
		pids = append(pids, r.redis.PID())
	}
	return pids
}

func (r *running) stop() {
	if r.server != nil {
		r.server.Stop()
	}
	if r.redis != nil {
		r.redis.Kill()
	}
	_ = os.RemoveAll(r.dir)
}
