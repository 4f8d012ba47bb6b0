package drive

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Accuracy is what an accuracy run saw. Times count from its start.
type Accuracy struct {
	Result
	Admitted              []time.Duration // when each admitted call was answered, in order
	FirstError, LastError time.Duration
	Stuck                 int64 // callers that did not come back
}

// patience is how long an accuracy run waits for its callers at the end.
const patience = 20 * time.Second

// RunAccuracy runs n callers flat out for d and counts what is admitted. Callers that are still
// blocked 20 s after the end are left behind and counted as stuck.
func RunAccuracy(n int, d time.Duration, decide Decide) *Accuracy {
	ctx := context.Background()
	var stop atomic.Bool
	var mu sync.Mutex
	a := &Accuracy{} // guarded by mu
	back := make(chan struct{}, n)
	start := time.Now()
	for range n {
		go func() {
			rnd := seed()
			for !stop.Load() {
				from := time.Since(start)
				ok, err := decide(ctx, &rnd)
				to := time.Since(start)
				if to > d+patience {
					return
				}
				mu.Lock()
				a.note(ok, err, from, to)
				mu.Unlock()
			}
			back <- struct{}{}
		}()
	}
	time.Sleep(d)
	stop.Store(true)
	late := time.After(patience)
	returned := 0
collect:
	for returned < n {
		select {
		case <-back:
			returned++
		case <-late:
			break collect
		}
	}
	mu.Lock()
	defer mu.Unlock()
	a.Wall, a.Stuck = time.Since(start), int64(n-returned)
	slices.Sort(a.Admitted)
	return a
}

func (a *Accuracy) note(ok bool, err error, from, to time.Duration) {
	a.add(ok, err, to-from)
	if err != nil {
		if a.FirstError == 0 {
			a.FirstError = to
		}
		a.LastError = to
	} else if ok {
		a.Admitted = append(a.Admitted, to)
	}
}

// In counts the admitted calls answered in [from, to).
func (a *Accuracy) In(from, to time.Duration) int {
	lo, _ := slices.BinarySearch(a.Admitted, from)
	hi, _ := slices.BinarySearch(a.Admitted, to)
	return max(0, hi-lo)
}

// MostPerSecond is the most that was admitted in any one second that begins at or after from.
func (a *Accuracy) MostPerSecond(from time.Duration) int {
	most := 0
	for _, t := range a.Admitted {
		if t >= from {
			most = max(most, a.In(t, t+time.Second))
		}
	}
	return most
}

// settled is when the burst is spent, in the accuracy runs.
const settled = 1500 * time.Millisecond

// Metrics are the columns of an accuracy run in which most units were allowed.
func (a *Accuracy) Metrics(most float64) map[string]float64 {
	m := a.Result.Metrics()
	m["admitted"] = float64(len(a.Admitted))
	m["most"] = most
	m["over_pct"] = 100 * (float64(len(a.Admitted))/most - 1)
	m["max_1s"] = float64(a.MostPerSecond(0))
	m["steady_1s"] = float64(a.MostPerSecond(settled))
	m["stuck"] = float64(a.Stuck)
	return m
}

// AddOutage adds what happened around an outage from..to. Calls under way when it begins have 50 ms
// to be answered.
func (a *Accuracy) AddOutage(m map[string]float64, from, to time.Duration) {
	m["admitted_in_outage"] = float64(a.In(from+50*time.Millisecond, to))
	m["admitted_1s_after"] = float64(a.In(to, to+time.Second))
	if i, _ := slices.BinarySearch(a.Admitted, to); i < len(a.Admitted) {
		m["recovered_after_s"] = (a.Admitted[i] - to).Seconds()
	}
	m["first_error_s"] = a.FirstError.Seconds()
	m["last_error_s"] = a.LastError.Seconds()
}
