package drawgate_test

import (
	"context"
	"fmt"
	"time"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/store/memstore"
)

// At most two requests in any hour. A refusal is an answer, not an error, and costs nothing.
func ExampleLimiter_Allow() {
	lim, err := drawgate.New(memstore.New(nil), drawgate.PerHour("uploads", 2), nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	for range 3 {
		d, err := lim.Allow(context.Background(), "user-17")
		switch {
		case err != nil:
			fmt.Println("not decided:", err)
		case d.Allowed:
			fmt.Println("allowed,", d.Remaining(), "left")
		default:
			fmt.Println("refused, retry after", d.RetryAfter.Round(time.Minute))
		}
	}
	// Output:
	// allowed, 1 left
	// allowed, 0 left
	// refused, retry after 1h0m0s
}

// Status spends nothing.
func ExampleLimiter_Status() {
	lim, err := drawgate.New(memstore.New(nil), drawgate.PerHour("uploads", 100), nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx := context.Background()
	_, _ = lim.Allow(ctx, "user-17", drawgate.Requests(30))
	st, err := lim.Status(ctx, "user-17", drawgate.Requests(80))
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("used", st.States[0].Used, "of", st.States[0].Max)
	fmt.Println("80 more would be allowed:", st.Allowed)
	// Output:
	// used 30 of 100
	// 80 more would be allowed: false
}

// AllowUpTo takes what there is: of 100 rows that wait to be sent, 60 may go now.
func ExampleLimiter_AllowUpTo() {
	lim, err := drawgate.New(memstore.New(nil), drawgate.PerHour("rows", 60), nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	for range 2 {
		d, n, err := lim.AllowUpTo(context.Background(), "export", drawgate.Requests(100))
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println(n, "rows now, more in", d.ResetAfter().Round(time.Minute))
	}
	// Output:
	// 60 rows now, more in 1h0m0s
	// 0 rows now, more in 1h0m0s
}
