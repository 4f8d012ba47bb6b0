package main

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/drawgate/drawgate/benchmarks/internal/chat"
	"github.com/drawgate/drawgate/benchmarks/internal/sysx"
)

// pace is the time between two events of a stream that is held.
const pace = "200ms"

// holdStreams runs many streams at the same time, and measures the memory of the process in front
// of them: with all of them open, in the middle, and at the end.
func (b *bench) holdStreams() error {
	const name = "memory"
	if !b.only.MatchString(name) {
		return nil
	}
	for _, who := range []string{proxy, gateway} {
		m, err := b.hold(who)
		if err != nil {
			return fmt.Errorf("%s, %s: %w", name, who, err)
		}
		if err := b.put(who, name, 1, m, ""); err != nil {
			return err
		}
	}
	return nil
}

func (b *bench) hold(who string) (map[string]float64, error) {
	m := map[string]float64{"streams": float64(*held)}
	if err := b.memory(who, "before", m); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	addr, path := b.at(who, bare)
	var open, over sync.WaitGroup
	var ended atomic.Int64 // streams, before they were to
	for i := range *held {
		open.Add(1)
		over.Go(func() {
			conn := chat.NewConn(addr)
			defer conn.Close()
			first := sync.OnceFunc(open.Done)
			defer first()
			request := chat.Request(addr, path, callerKey, chat.Body(bodySize, true, i%2 == 0), chat.HeaderSeed,
				strconv.Itoa(i), chat.HeaderPace, pace)
			if _, _ = conn.Call(ctx, request, func([]byte) { first() }); ctx.Err() == nil {
				ended.Add(1)
			}
		})
	}
	open.Wait()
	var failed error
	for i, when := range []string{"start", "middle", "end"} {
		if i > 0 {
			time.Sleep(*hold / 2)
		}
		if failed = b.memory(who, when, m); failed != nil {
			break
		}
	}
	if n := ended.Load(); n > 0 && failed == nil {
		failed = fmt.Errorf("%d of %d streams ended early", n, *held)
	}
	cancel()
	over.Wait()
	if failed == nil {
		failed = b.memory(who, "after", m)
	}
	m["live_mb_growth"] = 100 * (m["live_mb_end"]/m["live_mb_start"] - 1)
	// from the start on, garbage fills the heap up to twice what is in use
	m["rss_mb_growth"] = 100 * (m["rss_mb_end"]/m["rss_mb_middle"] - 1)
	return m, failed
}

// memory notes the memory of a process after a garbage collection: it makes calls until one has
// begun and ended meanwhile.
func (b *bench) memory(who, when string, m map[string]float64) error {
	p := b.parts[who]
	addr, path := b.at(who, bare)
	conns := newConns(addr, 1)
	defer conns.close()
	request := chat.Request(addr, path, callerKey, chat.Body(bodySize, false, false))
	last := collections(p)
	for len(collections(p)) < len(last)+2 {
		if err := conns.call(context.Background(), request, nil); err != nil {
			return err
		}
	}
	rss, err := resident(p.PID())
	if err != nil {
		return err
	}
	all := collections(p)
	m["rss_mb_"+when], m["live_mb_"+when] = rss, all[len(all)-1]
	return nil
}

// collections returns what was in use after each garbage collection of a process, in MB, by the
// lines that the runtime prints: gc 1 @0.1s 0%: … ms clock, … ms cpu, 4->4->1 MB, ….
func collections(p *sysx.Process) (live []float64) {
	for line := range strings.Lines(p.Printed()) {
		if !strings.HasPrefix(line, "gc ") {
			continue
		}
		before, _, _ := strings.Cut(line, " MB,")
		mb, err := strconv.ParseFloat(before[strings.LastIndexByte(before, '>')+1:], 64)
		if err == nil {
			live = append(live, mb)
		}
	}
	return live
}

// resident is the memory of a process that is in RAM, in MB.
func resident(pid int) (float64, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
	if err != nil {
		return 0, err
	}
	f := strings.Fields(string(b)) // size resident …, in pages
	pages, err := strconv.Atoi(f[1])
	return float64(pages*os.Getpagesize()) / (1 << 20), err
}
