package drawgate_test

import (
	"context"
	"fmt"
	"time"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/store/memstore"
)

// Several limits of several units are one policy: all must pass, and the refusal says which one did
// not.
func ExamplePolicy() {
	lim, err := drawgate.New(memstore.New(nil), drawgate.Policy{Name: "gemini-flash", Limits: []drawgate.Limit{
		{Name: "rpm", Kind: drawgate.Rolling, Window: time.Minute, Amount: 10, Headroom: drawgate.Share{Percent: 20}},
		{Name: "tpm", Unit: "input_tokens", Kind: drawgate.Rolling, Window: time.Minute, Amount: 250_000},
		{Name: "rpd", Kind: drawgate.Calendar, Every: drawgate.Day, Zone: "America/Los_Angeles", Amount: 250, Headroom: drawgate.Share{Percent: 20}},
	}}, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx := context.Background()
	ask := func(tokens int64) {
		d, err := lim.Allow(ctx, "project", drawgate.Cost{Unit: "input_tokens", N: tokens})
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
