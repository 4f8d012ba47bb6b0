package drawgate_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/store/memstore"
)

// Wait stands in line until the take fits. If that cannot be before the deadline, it says so at
// once.
func ExampleLimiter_Wait() {
	lim, err := drawgate.New(memstore.New(nil), drawgate.Rate("api", 20, time.Second, 1), nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	start := time.Now()
	for range 3 {
		if _, err := lim.Wait(context.Background(), "api"); err != nil {
			fmt.Println(err)
		}
	}
	fmt.Println("three took 100ms or more:", time.Since(start) >= 100*time.Millisecond)

	daily, err := lim.With(drawgate.PerDay("reports", 1))
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for range 2 {
		_, err = daily.Wait(ctx, "report")
		fmt.Println("one a day, within a minute:", err == nil, errors.Is(err, drawgate.ErrDeadline))
	}
	// Output:
	// three took 100ms or more: true
	// one a day, within a minute: true false
	// one a day, within a minute: false true
}

// A take says what it waits for.
func ExampleWithProgress() {
	lim, err := drawgate.New(memstore.New(nil), drawgate.Rate("api", 20, time.Second, 1), nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx := drawgate.WithProgress(context.Background(), func(p drawgate.Progress) {
		fmt.Printf("place %d, %v by limit %q of policy %q, for 50ms at most: %v\n", p.Place, p.Reason, p.Limit,
			p.Policy, p.Estimate <= 50*time.Millisecond)
	})
	for range 2 {
		if _, err := lim.Wait(ctx, "api"); err != nil {
			fmt.Println(err)
		}
	}
	// Output:
	// place 1, limited by limit "rate" of policy "api", for 50ms at most: true
}

// What a process waits for: the longest line first.
func ExampleLimiter_Lines() {
	lim, err := drawgate.New(memstore.New(nil), drawgate.PerDay("reports", 1), nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	var done sync.WaitGroup
	waits := make(chan struct{}, 1)
	for range 2 { // the first passes
		done.Go(func() {
			_, _ = lim.Wait(drawgate.WithProgress(ctx, func(drawgate.Progress) { waits <- struct{}{} }), "team-a")
		})
	}
	<-waits
	for _, line := range lim.Lines() {
		fmt.Printf("%d wait for %s: %v by %q\n", line.Waiting, line.Key.Name, line.Reason, line.Limit)
	}
	cancel()
	done.Wait()
	// Output:
	// 1 wait for team-a: limited by "day"
}

// A handle on one key stands in where code expects a limiter that knows only one.
func ExampleLimiter_Key() {
	lim, err := drawgate.New(memstore.New(nil), drawgate.Rate("api", 1, time.Hour, 1), nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	h := lim.Key("api") // has the methods that others expect: Allow() bool, Wait(context.Context) error
	fmt.Println(h.Allow(), h.Allow())
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	fmt.Println(errors.Is(h.Wait(ctx), drawgate.ErrDeadline))
	// Output:
	// true false
	// true
}
