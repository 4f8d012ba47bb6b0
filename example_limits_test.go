package drawgate_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/store/memstore"
)

// Several limits of several units are one policy: all must pass, and the refusal says which one did
// not.
func ExamplePolicy() {
	lim, err := drawgate.New(memstore.New(nil), drawgate.Policy{Name: "gemini-flash", Limits: []drawgate.Limit{
		drawgate.RollingLimit("rpm", 10, time.Minute).WithHeadroom(drawgate.Percent(20)),
		drawgate.RollingLimit("tpm", 250_000, time.Minute).Of("input_tokens"),
		drawgate.CalendarLimit("rpd", 250, drawgate.Day, "America/Los_Angeles").WithHeadroom(drawgate.Percent(20)),
	}}, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx := context.Background()
	ask := func(tokens int64) {
		d, err := lim.Allow(ctx, "project", drawgate.Units("input_tokens", tokens))
		if err != nil {
			fmt.Println(err)
			return
		}
		if r, ok := d.Refusing(); ok {
			fmt.Println("refused by", r.Limit.Name)
			return
		}
		fmt.Print("allowed")
		for r := range d.Limits() {
			fmt.Print(", ", r.Limit.Name, " ", r.Remaining)
		}
		fmt.Println()
	}
	ask(100_000)
	ask(200_000)
	ask(150_000)
	ask(300_000)
	// Output:
	// allowed, rpm 7, tpm 150000, rpd 199
	// refused by tpm
	// allowed, rpm 6, tpm 0, rpd 198
	// drawgate: 300000 input_tokens can never fit limit "tpm" of policy "gemini-flash", which grants at most 250000 at this priority
}

// A limit of what its constructor says can be refined: another unit, a part that is kept unused, or
// any other field.
func ExampleRollingLimit() {
	tpm := drawgate.RollingLimit("tpm", 10_000, time.Minute).Of("tokens").WithHeadroom(drawgate.Percent(10))
	tpm.Margin = 2 * time.Second // what is on its way to the upstream
	lim, err := drawgate.New(memstore.New(nil), drawgate.Policy{Name: "model", Limits: []drawgate.Limit{tpm}}, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	d, err := lim.Allow(context.Background(), "project", drawgate.Tokens(2500))
	fmt.Println(d.Allowed, d.Remaining(), err)
	// Output: true 6500 <nil>
}

// A bucket is refilled steadily: here a request comes free each second, and three may come at once.
func ExampleBucketLimit() {
	lim, err := drawgate.New(memstore.New(nil), drawgate.Policy{Name: "api", Limits: []drawgate.Limit{
		drawgate.BucketLimit("rate", 60, time.Minute, 3),
	}}, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	for range 4 {
		d, err := lim.Allow(context.Background(), "user-17")
		fmt.Println(d.Allowed, d.RetryAfter.Round(time.Second), err)
	}
	// Output:
	// true 0s <nil>
	// true 0s <nil>
	// true 0s <nil>
	// false 1s <nil>
}

// A day of the calendar starts at midnight in its zone, and ends with all units free again.
func ExampleCalendarLimit() {
	lim, err := drawgate.New(memstore.New(nil), drawgate.Policy{Name: "reports", Limits: []drawgate.Limit{
		drawgate.CalendarLimit("day", 250, drawgate.Day, "Europe/Berlin"),
	}}, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	d, err := lim.Allow(context.Background(), "user-17")
	if err != nil {
		fmt.Println(err)
		return
	}
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		fmt.Println(err)
		return
	}
	r, _ := d.Tightest()
	fmt.Println(r.Remaining, "left until", r.ResetAt().In(berlin).Format("15:04"))
	// Output: 249 left until 00:00
}

// Slots are held: by at most two callers at once.
func ExampleConcurrencyLimit() {
	lim, err := drawgate.New(memstore.New(nil), drawgate.Policy{Name: "builds", Limits: []drawgate.Limit{
		drawgate.ConcurrencyLimit("slots", 2),
	}}, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx := context.Background()
	res, err := lim.Reserve(ctx, "runner", time.Minute)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("free while one is held:", res.Decision.Remaining())
	fmt.Println("given back:", res.Cancel(ctx))
	// Output:
	// free while one is held: 1
	// given back: <nil>
}

// A cost names what a limit counts. Units of the same name add up; what is not named costs nothing,
// but for the one request that each take is.
func ExampleUnits() {
	lim, err := drawgate.New(memstore.New(nil), drawgate.Policy{Name: "model", Limits: []drawgate.Limit{
		drawgate.RollingLimit("rpm", 10, time.Minute),
		drawgate.RollingLimit("tpm", 1000, time.Minute).Of("input_tokens"),
	}}, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx := context.Background()
	for _, costs := range [][]drawgate.Cost{
		nil,
		{drawgate.Units("input_tokens", 300)},
		{drawgate.Requests(2), drawgate.Units("input_tokens", 100), drawgate.Units("input_tokens", 100)},
	} {
		d, err := lim.Allow(ctx, "project", costs...)
		fmt.Println(d.Left(0), d.Left(1), err)
	}
	// Output:
	// 9 1000 <nil>
	// 8 700 <nil>
	// 6 500 <nil>
}

// A policy that says something impossible is an error when it is made, never when it is used: one
// per limit, all together.
func ExamplePolicy_Compile() {
	_, err := drawgate.Policy{Name: "model", Limits: []drawgate.Limit{
		drawgate.RollingLimit("rpm", 5, time.Nanosecond),
		drawgate.CalendarLimit("rpd", 25, drawgate.Day, "Mars/Olympus"),
	}}.Compile()
	if mistake, ok := errors.AsType[*drawgate.LimitError](err); ok {
		fmt.Printf("limit %d of policy %s is wrong\n", mistake.Index+1, mistake.Policy)
	}
	fmt.Println(drawgate.RollingLimit("rpm", 5, time.Nanosecond).Check())
	// Output:
	// limit 1 of policy model is wrong
	// window 1ns is not between 1ms and 8784h0m0s in whole microseconds
}

// A tier without a limit is a policy like any other, so that nothing else needs to know of it.
func ExampleUnlimited() {
	lim, err := drawgate.New(memstore.New(nil), drawgate.Unlimited("enterprise", drawgate.UnitRequests, "tokens"), nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	for range 1000 {
		d, err := lim.Allow(context.Background(), "key", drawgate.Requests(1), drawgate.Tokens(1_000_000))
		if err != nil || !d.Allowed {
			fmt.Println("refused:", err)
			return
		}
	}
	fmt.Println("1,000 million tokens passed")
	// Output: 1,000 million tokens passed
}
