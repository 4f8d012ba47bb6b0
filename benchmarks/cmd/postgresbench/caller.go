package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"runtime/pprof"
	"sync"
	"time"

	"github.com/drawgate/drawgate/benchmarks/internal/drive"
	"github.com/drawgate/drawgate/benchmarks/lim"
)

// report is what callers say after each time. Those of rate-limiter-flexible (callers.js) say the
// same.
type report struct {
	Seconds float64           `json:"seconds"` // until the last call was answered
	Granted int64             `json:"granted"`
	Failed  int64             `json:"failed"` // refused ones too
	Errors  string            `json:"errors"` // some of them
	Nanos   map[uint64]uint64 `json:"ns"`     // how often a call took so long
}

// order is a line of the input: when to begin, on the machine's clock, and how long to call.
const order = "%d %d" // Unix ns, ns

// serveCalls calls as each line of the input says.
func serveCalls() (err error) {
	ctx := context.Background()
	t, end, err := open(ctx, *call)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, end()) }()
	names := lim.Keys(*keys)
	if err := takeEach(ctx, t, names); err != nil {
		return err
	}
	fmt.Println("ready")
	if *profile != "" {
		f, err := os.Create(*profile)
		if err != nil {
			return err
		}
		defer f.Close() //nolint:errcheck // the profile is written
		if err := pprof.StartCPUProfile(f); err != nil {
			return err
		}
		defer pprof.StopCPUProfile()
	}
	decide := func(ctx context.Context, rnd *lim.Rand) (bool, error) { return t(ctx, names[rnd.N(len(names))]) }
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		var start, length int64
		if _, err := fmt.Sscanf(in.Text(), order, &start, &length); err != nil {
			return err
		}
		time.Sleep(time.Until(time.Unix(0, start)))
		r := drive.Closed(*callers, time.Duration(length), decide)
		got := report{r.Wall.Seconds(), r.Allowed, r.Ops - r.Allowed, r.Note(), map[uint64]uint64{}}
		for d, n := range r.Hist.All() {
			got.Nanos[uint64(d)] = n
		}
		if err := json.NewEncoder(os.Stdout).Encode(got); err != nil {
			return err
		}
	}
	return nil
}

// takeEach takes once from each key, so that all rows are there.
func takeEach(ctx context.Context, t take, names []string) error {
	todo := make(chan string, len(names))
	for _, k := range names {
		todo <- k
	}
	close(todo)
	errs := make([]error, *callers)
	var wg sync.WaitGroup
	for i := range errs {
		wg.Go(func() {
			for k := range todo {
				ok, err := t(ctx, k)
				if err == nil && !ok {
					err = fmt.Errorf("the first take of %s was refused", k)
				}
				if err != nil {
					errs[i] = err
					return
				}
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}
