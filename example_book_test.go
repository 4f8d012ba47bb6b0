package drawgate_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/store/memstore"
)

// Book paces work: each booking says when its work may start. What is not needed is cancelled
// before.
func ExampleLimiter_Book() {
	lim, err := drawgate.New(memstore.New(nil), drawgate.Rate("api", 1, time.Second, 1), nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx := context.Background()
	var last *drawgate.Booking
	for range 3 {
		b, err := lim.Book(ctx, "api", 10*time.Second)
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println("starts in", b.Delay().Round(time.Second), "and counts in", b.Decision.Delay().Round(time.Second))
		last = b
	}
	fmt.Println("cancelled:", last.Cancel(ctx) == nil)
	_, err = lim.Book(ctx, "api", 0)
	fmt.Println("not now:", errors.Is(err, drawgate.ErrLimited))
	// Output:
	// starts in 0s and counts in 0s
	// starts in 1s and counts in 1s
	// starts in 2s and counts in 2s
	// cancelled: true
	// not now: true
}
