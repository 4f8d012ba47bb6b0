package drawgate_test

import (
	"context"
	"fmt"
	"time"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/store/memstore"
)

// One take of several buckets: per caller, and for the API as a whole. All of them are charged, or
// none.
func ExampleLimiter_Take() {
	perIP, err := drawgate.New(memstore.New(nil), drawgate.Policy{Name: "per-ip", Limits: []drawgate.Limit{
		drawgate.BucketLimit("rate", 10, time.Hour, 2),
	}}, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	api, err := perIP.With(drawgate.Policy{Name: "api", Limits: []drawgate.Limit{
		drawgate.BucketLimit("rate", 100, time.Hour, 3),
	}})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, ip := range []string{"192.0.2.1", "192.0.2.1", "192.0.2.1", "192.0.2.2", "192.0.2.3"} {
		d, _, err := perIP.Take(context.Background(), drawgate.Request{Buckets: []drawgate.Ask{
			perIP.Ask(ip),
			api.Ask("all"),
		}})
		if err != nil {
			fmt.Println(err)
			return
		}
		if r, ok := d.Refusing(); ok {
			fmt.Println(ip, "refused by", r.Policy)
		} else {
			fmt.Println(ip, "allowed")
		}
	}
	// Output:
	// 192.0.2.1 allowed
	// 192.0.2.1 allowed
	// 192.0.2.1 refused by per-ip
	// 192.0.2.2 allowed
	// 192.0.2.3 refused by api
}
