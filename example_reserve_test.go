package drawgate_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/store/memstore"
)

// The cost of a call to a language model is known only afterwards: an estimate is held, and settled
// with what was used.
func ExampleLimiter_Reserve() {
	lim, err := drawgate.New(memstore.New(nil), drawgate.Policy{Name: "model", Limits: []drawgate.Limit{
		drawgate.RollingLimit("tpm", 5000, time.Minute).Of("tokens"),
	}}, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx := context.Background()
	left := func() int64 {
		st, _ := lim.Status(ctx, "project")
		return st.Remaining()
	}

	res, err := lim.Reserve(ctx, "project", 30*time.Second, drawgate.Tokens(3750))
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("while it is held:", left())
	if err := res.Settle(ctx, drawgate.Tokens(900)); err != nil {
		fmt.Println(err)
	}
	fmt.Println("settled:", left())
	fmt.Println("a second time:", errors.Is(res.Settle(ctx), drawgate.ErrGone))

	res, err = lim.Reserve(ctx, "project", 30*time.Second, drawgate.Tokens(1000))
	if err != nil {
		fmt.Println(err)
		return
	}
	if err := res.Cancel(ctx); err != nil {
		fmt.Println(err)
	}
	fmt.Println("cancelled:", left())
	// Output:
	// while it is held: 1250
	// settled: 4100
	// a second time: true
	// cancelled: 4100
}

// At most two at once: Take answers now where Reserve would wait. A slot whose holder dies comes
// free when its hold ends.
func ExampleLimiter_Take_hold() {
	lim, err := drawgate.New(memstore.New(nil), drawgate.Policy{Name: "workers", Limits: []drawgate.Limit{
		drawgate.ConcurrencyLimit("at-once", 2),
	}}, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx := context.Background()
	now := drawgate.Request{Buckets: []drawgate.Ask{lim.Ask("build")}, Hold: drawgate.Hold{For: time.Minute}}
	_, first, _ := lim.Take(ctx, now)
	_, _, _ = lim.Take(ctx, now)
	d, _, err := lim.Take(ctx, now)
	fmt.Println("a third:", d.Allowed, err)
	_ = first.Cancel(ctx)
	d, _, err = lim.Take(ctx, now)
	fmt.Println("after one has ended:", d.Allowed, err)
	// Output:
	// a third: false <nil>
	// after one has ended: true <nil>
}

// A lease is not renewed while one of its buckets is paused: what it holds is returned instead.
func ExampleReservation_Renew() {
	lim, err := drawgate.New(memstore.New(nil), drawgate.PerMinute("api", 100), nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx := context.Background()
	_, lease, err := lim.Take(ctx, drawgate.Request{
		Buckets: []drawgate.Ask{{Key: "project", Costs: []drawgate.Cost{drawgate.Requests(20)}}},
		Hold:    drawgate.Hold{For: time.Minute, Lease: true},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(lease.Renew(ctx, time.Minute))
	if err := lim.Pause(ctx, "project", time.Hour, "the provider is down"); err != nil {
		fmt.Println(err)
	}
	if errors.Is(lease.Renew(ctx, time.Minute), drawgate.ErrPaused) {
		fmt.Println("returned:", lease.Settle(ctx, drawgate.Requests(7)))
	}
	st, err := lim.Status(ctx, "project")
	if err != nil {
		fmt.Println(err)
	}
	left, err := lim.Unpause(ctx, "project", st.Pause.Until, "the provider is back")
	fmt.Println("ended:", left.IsZero(), err)
	// Output:
	// <nil>
	// returned: <nil>
	// ended: true <nil>
}
