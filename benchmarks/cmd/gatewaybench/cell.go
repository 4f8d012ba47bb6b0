package main

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/drawgate/drawgate/benchmarks/internal/chat"
	"github.com/drawgate/drawgate/benchmarks/internal/drive"
	"github.com/drawgate/drawgate/benchmarks/internal/stat"
	"github.com/drawgate/drawgate/benchmarks/lim"
)

// bodySize is that of the requests.
const bodySize = 4 << 10

// cell is one way of calling, for a time.
type cell struct {
	name     string
	upstream string
	callers  int
	stream   bool
}

var cells = []cell{
	{"rps-64", simulated, 64, false},
	{"rps-64-bare", bare, 64, false},
	{"lone", simulated, 1, false},
	{"lone-bare", bare, 1, false},
	{"first-byte", simulated, 1, true},
	{"first-byte-bare", bare, 1, true},
	{"first-byte-16", bare, 16, true},
}

// warm is how long callers run before a cell.
const warm = 200 * time.Millisecond

// measure runs a cell.
func (b *bench) measure(c cell, who string, rep int) error {
	addr, path := b.at(who, c.upstream)
	conns := newConns(addr, c.callers)
	defer conns.close()
	request := chat.Request(addr, path, callerKey, chat.Body(bodySize, c.stream, c.stream), chat.HeaderSeed, "1")
	var mu sync.Mutex
	var first *stat.Hist
	decide := func(ctx context.Context, _ *lim.Rand) (bool, error) {
		began, at := time.Now(), time.Duration(0)
		err := conns.call(ctx, request, func([]byte) {
			if at == 0 {
				at = time.Since(began)
			}
		})
		mu.Lock()
		defer mu.Unlock()
		first.Add(at)
		return true, err
	}
	part := b.parts[who]
	if part == nil {
		part = b.parts[c.upstream]
	}
	var r *drive.Result
	first = &stat.Hist{}
	drive.Closed(c.callers, warm, decide)
	u := gate().Run(func() {
		first = &stat.Hist{}
		r = drive.Closed(c.callers, *dur, decide)
	}, part.PID(), b.parts[c.upstream].PID())
	if r.Errs > 0 {
		return fmt.Errorf("%d of %d calls failed: %s", r.Errs, r.Ops, r.Note())
	}
	m := r.Metrics()
	all := u.Own + u.Procs[0]
	if who != direct {
		all += u.Procs[1]
	}
	m["cpu_us_call"], m["all_cpu_us_call"], m["other_cores"] = r.PerOp(u.Procs[0]), r.PerOp(all), u.Other
	m["first_p50_us"], m["first_p99_us"] = first.Quantile(.5), first.Quantile(.99)
	return b.put(who, c.name, rep, m, "")
}

// conns are connections to one address, one for each caller.
type conns struct{ idle chan *chat.Conn }

func newConns(addr string, n int) *conns {
	c := &conns{idle: make(chan *chat.Conn, n)}
	for range n {
		c.idle <- chat.NewConn(addr)
	}
	return c
}

// call makes a call that must be answered with 200.
func (c *conns) call(ctx context.Context, request []byte, each func([]byte)) error {
	conn := <-c.idle
	defer func() { c.idle <- conn }()
	resp, err := conn.Call(ctx, request, each)
	if err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("status %d", resp.StatusCode)
	}
	return nil
}

func (c *conns) close() {
	for range cap(c.idle) {
		(<-c.idle).Close()
	}
}
