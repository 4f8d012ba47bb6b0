package rls_test

import (
	"context"
	"fmt"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	ratelimit "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"

	"github.com/drawgate/drawgate/engine"
	"github.com/drawgate/drawgate/rls"
	"github.com/drawgate/drawgate/store/memstore"
)

func Example() {
	config, err := rls.ParseConfig("rates.yaml", []byte(`
domain: shop
descriptors:
  - key: customer
    rate_limit: {unit: minute, requests_per_unit: 2}
`), nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	store := memstore.New(nil)
	defer store.Close()
	e, err := engine.New(store, engine.Config{Policies: config.Policies()}, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	service := rls.New(e, &rls.Options{Config: config})

	server := rls.NewServer(nil)
	rls.Register(server, service) // server.Serve(listener) then answers Envoy

	for range 3 {
		answer, err := service.ShouldRateLimit(context.Background(), &ratelimit.RateLimitRequest{
			Domain: "shop",
			Descriptors: []*common.RateLimitDescriptor{{Entries: []*common.RateLimitDescriptor_Entry{{
				Key:   "customer",
				Value: "ann",
			}}}},
		})
		fmt.Println(answer.GetOverallCode(), answer.GetStatuses()[0].GetLimitRemaining(), err)
	}
	// Output:
	// OK 1 <nil>
	// OK 0 <nil>
	// OVER_LIMIT 0 <nil>
}
