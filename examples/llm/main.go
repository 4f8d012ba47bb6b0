// Command llm calls a language model inside its quota. What a call costs is known only afterwards:
// it reserves an estimate, and settles with what was really used. Eight workers wait in a fair
// queue for their turn.
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"sync"
	"time"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/store/memstore"
)

// quota is what the provider grants. The margin covers the time that a call takes to reach it, the
// headroom what others may use of it.
var quota = drawgate.Policy{Name: "flash", Limits: []drawgate.Limit{
	{Name: "rpm", Kind: drawgate.Rolling, Window: time.Second, Amount: 5, Margin: 50 * time.Millisecond},
	drawgate.RollingLimit("tpm", 10_000, time.Second).Of("tokens").WithHeadroom(drawgate.Percent(10)),
	drawgate.ConcurrencyLimit("parallel", 3).Of("calls"),
}}

func main() {
	lim, err := drawgate.New(memstore.New(nil), quota, nil)
	if err != nil {
		log.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			used, err := ask(ctx, lim, model, fmt.Sprintf("question %d", i))
			fmt.Printf("question %d: %d tokens, %v\n", i, used, err)
		})
	}
	wg.Wait()
}

// call asks a model. One that fails after it was sent may have used tokens: used says how many were
// delivered, if that is known.
type call func(ctx context.Context, prompt string) (used int64, err error)

// ask reserves, calls, and settles.
func ask(ctx context.Context, lim *drawgate.Limiter, model call, prompt string) (used int64, err error) {
	const estimate = 2_000
	res, err := lim.Reserve(ctx, "project-a", 30*time.Second, drawgate.Tokens(estimate), drawgate.Units("calls", 1),
		drawgate.Requests(1))
	if err != nil {
		return 0, err
	}
	// The call must end before the hold does.
	limited, cancel := context.WithDeadline(ctx, res.Deadline())
	defer cancel()
	used, err = model(limited, prompt)

	switch { // each is carried out even if ctx has ended by then
	case err == nil:
		return used, res.Settle(ctx, drawgate.Tokens(used))
	case errors.Is(err, errNotSent):
		return 0, errors.Join(err, res.Cancel(ctx)) // nothing was used
	case used > 0:
		return used, errors.Join(err, res.Settle(ctx, drawgate.Tokens(used))) // what was delivered until then
	default:
		return 0, errors.Join(err, res.Settle(ctx)) // nobody knows: the estimate counts
	}
}

// errNotSent says that a call failed before anything was sent, for example because there was no
// connection.
var errNotSent = errors.New("the call was not sent")

// model stands for the provider.
func model(ctx context.Context, prompt string) (used int64, err error) {
	if err := ctx.Err(); err != nil {
		return 0, errors.Join(errNotSent, err)
	}
	select {
	case <-time.After(20 * time.Millisecond):
		return int64(100 * len(prompt)), nil
	case <-ctx.Done():
		return 0, ctx.Err()
	}
}
