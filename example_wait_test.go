package drawgate_test

import (
	"context"
	"errors"
	"fmt"
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
