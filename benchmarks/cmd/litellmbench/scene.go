package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"time"

	"github.com/drawgate/drawgate/benchmarks/internal/sysx"
	"github.com/drawgate/drawgate/llm/simulator"
)

// patience is how long a proxy may take to start.
const patience = 90 * time.Second

// scene is a contestant with everything that it needs, each in a process of its own.
type scene struct {
	dir      string
	redis    *sysx.Redis
	upstream *sysx.Process
	proxies  []*sysx.Process
}

// quotas are those of the simulator. It only counts: refusing would hide how many calls are sent.
// Tokens cost what OpenAI documents: see docs/simulator.md.
const quotas = `{
  "quotas": [{"provider": "openai", "name": "all", "models": ["*"], "shared": true, "limits": [
    {"name": "rpm", "dimension": "requests", "amount": 1000000000, "window": "rolling"},
    {"name": "tpm", "dimension": "tokens", "amount": 1000000000000, "window": "rolling"}
  ]}]
}`

// setUp starts everything. After an error nothing runs.
func setUp(c cell, who contestant) (s *scene, err error) {
	s = &scene{}
	defer func() {
		if err != nil {
			s.stop()
		}
	}()
	if s.dir, err = os.MkdirTemp("", "bench"); err != nil {
		return s, err
	}
	if s.redis, err = startRedis(); err != nil {
		return s, err
	}
	if err = s.startUpstream(); err != nil {
		return s, err
	}
	for i := range c.replicas {
		at := place{
			dir: filepath.Join(s.dir, strconv.Itoa(i)), upstream: s.upstream.Addr, redis: s.redis.Addr,
			replicas: c.replicas,
		}
		if err = s.startReplica(at, c, who); err != nil {
			return s, err
		}
	}
	for _, p := range s.proxies {
		if err = ready("http://" + p.Addr + who.health); err != nil {
			return s, fmt.Errorf("%w\n%s", err, p.Printed())
		}
	}
	return s, nil
}

func startRedis() (*sysx.Redis, error) {
	addr, err := sysx.Free()
	if err != nil {
		return nil, err
	}
	_, port, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, err
	}
	n, err := strconv.Atoi(port)
	if err != nil {
		return nil, err
	}
	return sysx.StartRedis(n)
}

func (s *scene) startUpstream() error {
	path := filepath.Join(s.dir, "simulator.json")
	if err := os.WriteFile(path, []byte(quotas), 0o600); err != nil {
		return err
	}
	addr, err := sysx.Free()
	if err != nil {
		return err
	}
	s.upstream, err = sysx.StartProcess(exec.Command(filepath.Join(*bin, "drawgate"), "simulate", "--config", path, "--listen", addr), addr, patience) //nolint:gosec,noctx // ours
	return err
}

func (s *scene) startReplica(at place, c cell, who contestant) (err error) {
	if err := os.Mkdir(at.dir, 0o700); err != nil {
		return err
	}
	if at.addr, err = sysx.Free(); err != nil {
		return err
	}
	cmd, err := who.start(at, c.limits)
	if err != nil {
		return err
	}
	cmd.Dir = at.dir
	p, err := sysx.StartProcess(cmd, at.addr, patience)
	if err == nil {
		s.proxies = append(s.proxies, p)
	}
	return err
}

// ready waits until a URL answers 200.
func ready(url string) error {
	var last error
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		resp, err := get(url)
		if last = err; err == nil {
			_ = resp.Body.Close() // only its status matters
			if resp.StatusCode == http.StatusOK {
				return nil
			}
			last = fmt.Errorf("%s answers %s", url, resp.Status)
		}
	}
	return last
}

func get(url string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(context.Background(), http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	return http.DefaultClient.Do(req)
}

func (s *scene) stop() {
	for _, p := range s.proxies {
		p.Stop()
	}
	if s.upstream != nil {
		s.upstream.Stop()
	}
	if s.redis != nil {
		s.redis.Kill()
	}
	_ = os.RemoveAll(s.dir)
}

func (s *scene) addrs() (addrs []string) {
	for _, p := range s.proxies {
		addrs = append(addrs, p.Addr)
	}
	return addrs
}

// pids are those of Redis and of the replicas.
func (s *scene) pids() []int {
	pids := []int{s.redis.PID()}
	for _, p := range s.proxies {
		pids = append(pids, p.PID())
	}
	return pids
}

// referee asks the simulator what was used of the limits.
func (s *scene) referee(l limits, d time.Duration) (map[string]float64, error) {
	resp, err := get("http://" + s.upstream.Addr + "/simulator/report")
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close() //nolint:errcheck // it was read
	var r simulator.Report
	if err := json.NewDecoder(resp.Body).Decode(&r); err != nil {
		return nil, err
	}
	m := map[string]float64{"arrived": float64(r.Calls)}
	for _, line := range r.Limits {
		amount := l.rpm
		if line.Limit == "tpm" {
			amount = l.tpm
		}
		m[line.Limit+"_total"] = float64(line.Total)
		m[line.Limit+"_rolling"], m[line.Limit+"_aligned"] = float64(line.WorstRolling), float64(line.WorstAligned)
		m[line.Limit+"_over_rolling"], m[line.Limit+"_over_aligned"] = float64(max(0, line.WorstRolling-amount)),
			float64(max(0, line.WorstAligned-amount))
		used, err := s.used(line.Limit, r.From, wholeWindows(d))
		if err != nil {
			return nil, err
		}
		m[line.Limit+"_use_pct"] = 100 * used / (float64(amount) * max(1, wholeWindows(d).Minutes()))
	}
	return m, nil
}

// wholeWindows is how many whole minutes a run has, as a duration.
func wholeWindows(d time.Duration) time.Duration { return d.Truncate(time.Minute) }

// used is what was used of a limit within d from the first call on.
func (s *scene) used(limit string, from time.Time, d time.Duration) (used float64, err error) {
	for after := int64(0); ; {
		resp, err := get(fmt.Sprintf("http://%s/simulator/ledger?limit=10000&after=%d", s.upstream.Addr, after))
		if err != nil {
			return 0, err
		}
		var page struct {
			Calls []simulator.Call `json:"calls"`
			Next  int64            `json:"next"`
		}
		err = json.NewDecoder(resp.Body).Decode(&page)
		_ = resp.Body.Close() // it was read
		if err != nil {
			return 0, err
		}
		for i := range page.Calls {
			if c := &page.Calls[i]; c.Arrived.Sub(from) < d {
				if limit == "tpm" {
					used += float64(c.Final.Tokens)
				} else {
					used += float64(c.Final.Requests)
				}
			}
		}
		if after = page.Next; after == 0 {
			return used, nil
		}
	}
}
