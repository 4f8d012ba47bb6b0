package main

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/drawgate/drawgate/benchmarks/internal/chat"
	"github.com/drawgate/drawgate/benchmarks/internal/stat"
)

// bodySize makes a call of about 1,050 tokens with its answer, as the simulator counts them: 60 of
// them are 63,000.
const bodySize = 3690

// result is what the callers saw.
type result struct {
	wall time.Duration

	mu       sync.Mutex
	statuses map[int]int // 0: the connection failed
	errors   map[string]int
	waits    stat.Hist // of tasks: from the first attempt until the answer
	own      stat.Hist // of calls that were answered: the time without the queue's
	refusals stat.Hist // of calls that were refused: their time
	waiting  int       // tasks without an answer at the end
	longest  time.Duration
}

// load runs n callers for d. A caller's task is one call: it sends it until it is answered, at once
// after each refusal, and then begins the next one.
func load(addrs []string, path string, n int, d time.Duration) *result {
	r := &result{statuses: map[int]int{}, errors: map[string]int{}}
	ctx, cancel := context.WithTimeout(context.Background(), d)
	defer cancel()
	body := chat.Body(bodySize, false, false)
	start := time.Now()
	var wg sync.WaitGroup
	for i := range n {
		addr := addrs[i%len(addrs)]
		wg.Go(func() {
			conn := chat.NewConn(addr)
			defer conn.Close()
			request := chat.Request(addr, path, callerKey, body)
			for ctx.Err() == nil {
				r.task(ctx, conn, request)
			}
		})
	}
	wg.Wait()
	r.wall = time.Since(start)
	return r
}

// task makes one call, as often as it takes.
func (r *result) task(ctx context.Context, conn *chat.Conn, request []byte) {
	begin := time.Now()
	for {
		sent := time.Now()
		resp, err := conn.Call(ctx, request, nil)
		if ctx.Err() != nil {
			break
		}
		if r.add(resp, err, time.Since(sent), time.Since(begin)) {
			return
		}
		if err != nil {
			time.Sleep(20 * time.Millisecond) // the proxy cannot be reached: trying at once would only take CPU
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.waiting++
	r.longest = max(r.longest, time.Since(begin))
}

// add notes an attempt, and reports whether it was answered.
func (r *result) add(resp *http.Response, err error, took, waited time.Duration) (answered bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err != nil {
		r.statuses[0]++
		r.errors[err.Error()]++
		return false
	}
	r.statuses[resp.StatusCode]++
	if resp.StatusCode != http.StatusOK {
		r.refusals.Add(took)
		return false
	}
	queued, _ := strconv.Atoi(resp.Header.Get("Drawgate-Queued-Ms")) // LiteLLM has no queue
	r.own.Add(max(0, took-time.Duration(queued)*time.Millisecond))
	r.waits.Add(waited)
	return true
}

// metrics adds the columns of the callers.
func (r *result) metrics(m map[string]float64) {
	total := 0
	for _, n := range r.statuses {
		total += n
	}
	m["requests"], m["answered"], m["refused"] = float64(total), float64(r.statuses[http.StatusOK]),
		float64(r.statuses[http.StatusTooManyRequests])
	m["other_answers"] = m["requests"] - m["answered"] - m["refused"]
	m["wait_p50_s"], m["wait_p99_s"] = r.waits.Quantile(.5)/1e6, r.waits.Quantile(.99)/1e6
	m["wait_max_s"] = max(r.waits.Max, r.longest).Seconds()
	m["waiting_at_end"] = float64(r.waiting)
	m["own_p50_ms"], m["own_p99_ms"] = r.own.Quantile(.5)/1e3, r.own.Quantile(.99)/1e3
	m["refusal_p50_ms"], m["refusal_p99_ms"] = r.refusals.Quantile(.5)/1e3, r.refusals.Quantile(.99)/1e3
	m["rps"] = float64(total) / r.wall.Seconds()
}

// note is what else was answered.
func (r *result) note() string {
	var parts []string
	for _, status := range slices.Sorted(maps.Keys(r.statuses)) {
		parts = append(parts, fmt.Sprintf("%d: %d", status, r.statuses[status]))
	}
	for text := range r.errors {
		parts = append(parts, text)
		break
	}
	return strings.Join(parts, ", ")
}
