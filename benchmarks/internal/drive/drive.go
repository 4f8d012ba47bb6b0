// Package drive runs closed loops and accuracy loops over one decision.
package drive

import (
	"context"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/drawgate/drawgate/benchmarks/internal/stat"
	"github.com/drawgate/drawgate/benchmarks/lim"
)

// Decide makes one decision; it may choose its key with rnd.
type Decide func(ctx context.Context, rnd *lim.Rand) (bool, error)

// Result is what a loop saw.
type Result struct {
	Wall         time.Duration
	Ops, Allowed int64
	Errs         int64
	Hist         stat.Hist // failed calls too
	Errors       map[string]int64
}

// maxErrors bounds the different error texts kept, and maxErrorText their length.
const maxErrors, maxErrorText = 50, 160

func (r *Result) add(ok bool, err error, d time.Duration) {
	r.Ops++
	r.Hist.Add(d)
	switch {
	case err == nil && ok:
		r.Allowed++
	case err != nil:
		r.Errs++
		if r.Errors == nil {
			r.Errors = map[string]int64{}
		}
		if len(r.Errors) < maxErrors {
			s := err.Error()
			r.Errors[s[:min(len(s), maxErrorText)]]++
		}
	}
}

func (r *Result) merge(o *Result) {
	r.Ops += o.Ops
	r.Allowed += o.Allowed
	r.Errs += o.Errs
	r.Hist.Merge(&o.Hist)
	for k, v := range o.Errors {
		if r.Errors == nil {
			r.Errors = map[string]int64{}
		}
		r.Errors[k] += v
	}
}

// Metrics are the result's columns; cpu times are per operation.
func (r *Result) Metrics() map[string]float64 {
	return map[string]float64{
		"ops_s":       float64(r.Ops) / r.Wall.Seconds(),
		"p50_us":      r.Hist.Quantile(.5),
		"p99_us":      r.Hist.Quantile(.99),
		"p999_us":     r.Hist.Quantile(.999),
		"max_us":      float64(r.Hist.Max) / 1e3,
		"allowed_pct": 100 * float64(r.Allowed) / float64(max(1, r.Ops)),
		"errors":      float64(r.Errs),
	}
}

// PerOp is d per operation in microseconds.
func (r *Result) PerOp(d time.Duration) float64 {
	return float64(d.Nanoseconds()) / 1e3 / float64(max(1, r.Ops))
}

// Note is the three most frequent errors.
func (r *Result) Note() string {
	texts := slices.SortedFunc(maps.Keys(r.Errors), func(a, b string) int { return int(r.Errors[b] - r.Errors[a]) })
	return strings.Join(texts[:min(len(texts), 3)], " | ")
}

// loops makes the random numbers of each loop different from the last one's.
var loops atomic.Uint64

func seed() lim.Rand { return lim.Rand(loops.Add(0x9E3779B97F4A7C15) | 1) }

// Closed runs n callers for d; each sends its next call when the last one returned.
func Closed(n int, d time.Duration, decide Decide) *Result {
	ctx := context.Background()
	var stop atomic.Bool
	var wg sync.WaitGroup
	callers := make([]Result, n)
	start := time.Now()
	for i := range callers {
		c := &callers[i]
		wg.Go(func() {
			rnd := seed()
			for !stop.Load() {
				t := time.Now()
				ok, err := decide(ctx, &rnd)
				c.add(ok, err, time.Since(t))
			}
		})
	}
	time.Sleep(d)
	stop.Store(true)
	wg.Wait()
	r := &Result{Wall: time.Since(start)}
	for i := range callers {
		r.merge(&callers[i])
	}
	return r
}
