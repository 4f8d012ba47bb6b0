package cloudwatch_test

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/store/memstore"
	"github.com/drawgate/drawgate/telemetry/cloudwatch"
)

// A function of AWS Lambda reports at the end of each invocation.
func Example() {
	var stdout bytes.Buffer // os.Stdout in a function
	m, err := cloudwatch.New(&cloudwatch.Options{EMF: &stdout, Interval: -1})
	if err != nil {
		fmt.Println(err)
		return
	}
	policy := drawgate.Policy{Name: "gemini", Limits: []drawgate.Limit{drawgate.BucketLimit("tpm", 250_000, time.Minute,
		0).Of("tokens")}}
	lim, err := drawgate.New(memstore.New(nil), policy, &drawgate.Options{Observer: m.Observer()})
	if err != nil {
		fmt.Println(err)
		return
	}
	handle := func(ctx context.Context) error {
		if _, err := lim.Allow(ctx, "project-1", drawgate.Tokens(3750)); err != nil {
			return err
		}
		return m.Flush(ctx)
	}
	if err := handle(context.Background()); err != nil {
		fmt.Println(err)
	}
	fmt.Println(strings.Contains(stdout.String(),
		`"BucketType":"TPM","Policy":"gemini","RateLimiterTokensAcquired":3750`))
	// Output: true
}
