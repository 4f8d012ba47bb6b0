package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/drawgate/drawgate/benchmarks/internal/chat"
	"github.com/drawgate/drawgate/benchmarks/internal/sysx"
)

// The names of upstreams, which are the first segment of callers' paths.
const (
	simulated = "simulator" // drawgate simulate
	bare      = "bare"      // gatewayparts, which only answers
)

// The contestants. The second proxy is the same as the first: what differs between them is noise.
const (
	direct     = "direct" // no proxy
	proxy      = "proxy"
	proxyAgain = "proxy-again"
	gateway    = "gateway"
	plain      = "proxy-plain" // without the full-duplex mode; only where streams are compared
)

var contestants = []string{direct, proxy, gateway, proxyAgain}

const callerKey = "sk-bench-b2f0c7d94e1a48c3a6d5f7e8091b3c4d"

// config is what docs/gateway.md begins with, with limits that no run reaches.
const config = `store: "memory:"
policies:
  quota:
    limits:
      - {name: rpm, rolling: 1m, amount: 1_000_000_000, margin: 2s}
      - {name: tpm, unit: tokens, rolling: 1m, amount: 1_000_000_000_000, margin: 2s, charge: end}
    wait: {up_to: 30s, queue: 1000}
gateway:
  upstreams:
    %s: {profile: openai, url: "http://%s", api_key_env: UPSTREAM_KEY, models: [{model: "*", policy: quota}]}
    %s: {profile: openai, url: "http://%s", api_key_env: UPSTREAM_KEY, models: [{model: "*", policy: quota}]}
  keys: [{name: bench, secret_env: CALLER_KEY}]
`

// scene is all processes.
type scene struct {
	dir   string
	parts map[string]*sysx.Process // by upstream or contestant
}

// startTime is how long a process may take to start.
const startTime = 20 * time.Second

// setUp starts everything. After an error nothing runs.
func setUp() (s *scene, err error) {
	s = &scene{parts: map[string]*sysx.Process{}}
	defer func() {
		if err != nil {
			s.stop()
		}
	}()
	if s.dir, err = os.MkdirTemp("", "bench"); err != nil {
		return s, err
	}
	if err = s.start(simulated, "drawgate", "simulate", "--listen"); err != nil {
		return s, err
	}
	if err = s.start(bare, "gatewayparts", "-upstream"); err != nil {
		return s, err
	}
	to := fmt.Sprintf("-to=%s=%s,%s=%s", simulated, s.parts[simulated].Addr, bare, s.parts[bare].Addr)
	for _, name := range []string{proxy, proxyAgain} {
		if err = s.start(name, "gatewayparts", to, "-proxy"); err != nil {
			return s, err
		}
	}
	if err = s.start(plain, "gatewayparts", "-duplex=false", to, "-proxy"); err != nil {
		return s, err
	}
	text := fmt.Sprintf(config, simulated, s.parts[simulated].Addr, bare, s.parts[bare].Addr)
	if err = os.WriteFile(filepath.Join(s.dir, "drawgate.yaml"), []byte(text), 0o600); err != nil {
		return s, err
	}
	return s, s.start(gateway, "drawgate", "gateway", "--config", "drawgate.yaml", "--admin", "off", "--listen")
}

// start starts a program whose last argument is the address where it is to listen.
func (s *scene) start(name, program string, args ...string) error {
	path, err := filepath.Abs(filepath.Join(*bin, program))
	if err != nil {
		return err
	}
	addr, err := sysx.Free()
	if err != nil {
		return err
	}
	cmd := exec.Command(path, append(args, addr)...) //nolint:gosec,noctx // ours
	cmd.Dir = s.dir
	// The lines about collections say what memory is in use: see holdStreams.
	cmd.Env = append(os.Environ(), "UPSTREAM_KEY=sk-upstream-0123456789", "CALLER_KEY="+callerKey, "GODEBUG=gctrace=1")
	s.parts[name], err = sysx.StartProcess(cmd, addr, startTime)
	return err
}

func (s *scene) stop() {
	for _, p := range s.parts {
		if p != nil {
			p.Stop()
		}
	}
	_ = os.RemoveAll(s.dir)
}

// at returns where to find an upstream by way of a contestant.
func (s *scene) at(who, upstream string) (addr, path string) {
	if who == direct {
		return s.parts[upstream].Addr, chat.Path
	}
	return s.parts[who].Addr, "/" + upstream + chat.Path
}
