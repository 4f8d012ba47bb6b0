package rls_test

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	ratelimit "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/drawgate/drawgate/engine"
	"github.com/drawgate/drawgate/engine/rules"
	"github.com/drawgate/drawgate/rls"
	"github.com/drawgate/drawgate/store/memstore"
)

// benched has a rate of everything that a request is usually counted by, far from being used up.
const benched = `
domain: bench
descriptors:
  - {key: remote_address, rate_limit: {unit: second, requests_per_unit: 100000000}}
  - key: service
    descriptors:
      - {key: user, rate_limit: {unit: minute, requests_per_unit: 100000000}}
`

// noop answers without deciding.
type noop struct {
	ratelimit.UnimplementedRateLimitServiceServer
}

func (noop) ShouldRateLimit(context.Context, *ratelimit.RateLimitRequest) (*ratelimit.RateLimitResponse, error) {
	return &ratelimit.RateLimitResponse{OverallCode: ok}, nil
}

// serveEnv makes the test binary a server: in a process of its own, so that what it uses can be
// told from what callers use.
const serveEnv = "RLS_BENCH_SERVER"

func TestMain(m *testing.M) {
	if kind := os.Getenv(serveEnv); kind != "" {
		serveBench(kind)
		return
	}
	os.Exit(m.Run())
}

// serveBench serves until its input ends: with its parent.
func serveBench(kind string) {
	g := rls.NewServer(nil)
	if kind == "noop" {
		ratelimit.RegisterRateLimitServiceServer(g, noop{})
	} else {
		c, err := rls.ParseConfig("bench", []byte(benched), nil)
		if err != nil {
			panic(err)
		}
		e, err := engine.New(memstore.New(nil), engine.Config{Policies: c.Policies()}, nil)
		if err != nil {
			panic(err)
		}
		rls.Register(g, rls.New(e, &rls.Options{Config: c}))
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	fmt.Println(l.Addr())
	go func() {
		_, _ = bufio.NewReader(os.Stdin).ReadByte()
		os.Exit(0)
	}()
	_ = g.Serve(l)
}

// BenchmarkRLS asks a server in a process of its own over loopback, at 64 callers on 8 connections.
// server-µs/op is that process's CPU time per call.
func BenchmarkRLS(b *testing.B) {
	for _, kind := range []string{"noop", "drawgate"} {
		for descriptors := 1; descriptors <= 2; descriptors++ {
			b.Run(fmt.Sprintf("server=%s/descriptors=%d", kind, descriptors), func(b *testing.B) {
				cmd := exec.Command(os.Args[0])
				cmd.Env = append(os.Environ(), serveEnv+"="+kind)
				in, err := cmd.StdinPipe()
				if err != nil {
					b.Fatal(err)
				}
				out, err := cmd.StdoutPipe()
				if err != nil {
					b.Fatal(err)
				}
				if err := cmd.Start(); err != nil {
					b.Fatal(err)
				}
				defer func() {
					in.Close()
					_ = cmd.Wait()
				}()
				addr, err := bufio.NewReader(out).ReadString('\n')
				if err != nil {
					b.Fatal(err)
				}
				callers(b, strings.TrimSpace(addr), cmd.Process.Pid, descriptors)
			})
		}
	}
}

func callers(b *testing.B, addr string, pid, descriptors int) {
	b.Helper()
	var clients [8]ratelimit.RateLimitServiceClient
	for i := range clients {
		conn, err := grpc.NewClient(addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			b.Fatal(err)
		}
		defer conn.Close()
		clients[i] = ratelimit.NewRateLimitServiceClient(conn)
	}
	var next atomic.Int64
	b.SetParallelism(32)
	b.ReportAllocs()
	before := cpuTime(b, pid)
	b.ResetTimer()
	b.RunParallel(func(pb *testing.PB) {
		i := next.Add(1)
		r := request("bench", descriptor("remote_address=192.0.2."+strconv.FormatInt(i, 10)),
			descriptor("service=api,user=u"+strconv.FormatInt(i, 10)))
		r.Descriptors = r.Descriptors[:descriptors]
		for pb.Next() {
			if a, err := clients[i%int64(len(clients))].ShouldRateLimit(context.Background(), r); err != nil ||
				a.GetOverallCode() != ok {
				b.Errorf("%v, %v", a, err)
				return
			}
		}
	})
	b.StopTimer()
	b.ReportMetric(float64((cpuTime(b, pid)-before).Microseconds())/float64(b.N), "server-µs/op")
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "calls/s")
}

// cpuTime returns what a process has used: utime and stime of /proc/PID/stat, in ticks of 10 ms.
func cpuTime(b *testing.B, pid int) time.Duration {
	b.Helper()
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		b.Skip("needs /proc: ", err)
	}
	fields := strings.Fields(string(data[strings.LastIndexByte(string(data), ')')+1:]))
	var ticks int64
	for _, f := range fields[11:13] {
		n, err := strconv.ParseInt(f, 10, 64)
		if err != nil {
			b.Fatal(err)
		}
		ticks += n
	}
	return time.Duration(ticks) * 10 * time.Millisecond
}

// BenchmarkDecide is the decision alone, by a file and by rules.
func BenchmarkDecide(b *testing.B) {
	s, _ := service(b, memory(b), config(b, benched), nil)
	decide(b, s, "by=file")
	e, err := engine.New(memory(b), engine.Config{
		Policies: []engine.Policy{hourly("per-ip", 1e8), hourly("per-user", 1e8)},
		Rules: []rules.Rule{
			{
				Match: rules.Match{Attrs: map[string]string{"remote_address": "*"}},
				Apply: []rules.Apply{{Policy: "per-ip", Key: "ip"}},
			},
			{Match: rules.Match{User: "*"}, Apply: []rules.Apply{{Policy: "per-user", Key: "user"}}},
		},
	}, nil)
	if err != nil {
		b.Fatal(err)
	}
	defer e.Close()
	decide(b, rls.New(e, nil), "by=rules")
}

func decide(b *testing.B, s *rls.Service, name string) {
	b.Helper()
	for descriptors := 1; descriptors <= 2; descriptors++ {
		b.Run(fmt.Sprintf("%s/descriptors=%d", name, descriptors), func(b *testing.B) {
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				r := request("bench", descriptor("remote_address=192.0.2.1"), descriptor("service=api,user=ann"))
				r.Descriptors = r.Descriptors[:descriptors]
				for pb.Next() {
					if _, err := s.ShouldRateLimit(context.Background(), r); err != nil {
						b.Error(err)
						return
					}
				}
			})
		})
	}
}
