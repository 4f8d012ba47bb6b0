package engine_test

import (
	"context"
	"fmt"
	"time"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/engine"
	"github.com/drawgate/drawgate/engine/rules"
	"github.com/drawgate/drawgate/store/memstore"
)

// A policy is enforced, a stricter one is tried in shadow; then the limit is raised while the
// engine runs.
func Example() {
	hourly := func(name string, n int64) drawgate.Policy {
		return drawgate.Policy{Name: name, Limits: []drawgate.Limit{drawgate.RollingLimit("hour", n, time.Hour)}}
	}
	config := engine.Config{
		Policies: []engine.Policy{{Policy: hourly("api", 2)}, {Policy: hourly("strict", 1), Shadow: true}},
		Rules: []rules.Rule{{Name: "all", Apply: []rules.Apply{
			{Policy: "api", Key: "user"},
			{Policy: "strict", Key: "user"},
		}}},
	}
	e, err := engine.New(memstore.New(nil), config, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer e.Close()
	take := func() {
		res, err := e.Take(context.Background(), &engine.Request{Attributes: &rules.Attributes{User: "ann"}})
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Printf("allowed %v, %s %q\n", res.Decision.Allowed, res.Shadow[0].Policy, res.Shadow[0].Divergence)
	}
	take()
	take()
	take()
	config.Policies = []engine.Policy{{Policy: hourly("api", 3)}, config.Policies[1]}
	if err := e.Replace(config); err != nil {
		fmt.Println(err)
		return
	}
	take()
	// Output:
	// allowed true, strict ""
	// allowed true, strict "would_refuse"
	// allowed false, strict ""
	// allowed true, strict "would_refuse"
}
