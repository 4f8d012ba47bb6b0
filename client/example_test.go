package client_test

import (
	"context"
	"fmt"
	"net/http/httptest"
	"time"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/api"
	"github.com/drawgate/drawgate/client"
	"github.com/drawgate/drawgate/engine"
	"github.com/drawgate/drawgate/server"
	"github.com/drawgate/drawgate/store/memstore"
)

// exampleServer stands for drawgate serve.
func exampleServer() *httptest.Server {
	store := memstore.New(nil)
	e, err := engine.New(store, engine.Config{Policies: []engine.Policy{{Policy: drawgate.Policy{
		Name: "llm",
		Limits: []drawgate.Limit{
			{Name: "rpm", Kind: drawgate.Rolling, Window: time.Minute, Amount: 2},
			{Name: "tpm", Unit: "tokens", Kind: drawgate.Rolling, Window: time.Minute, Amount: 1000},
		},
	}}}}, nil)
	if err != nil {
		return nil
	}
	s, err := server.New(e, store, nil)
	if err != nil {
		return nil
	}
	return httptest.NewServer(s)
}

func ExampleClient_Take() {
	ts := exampleServer()
	defer ts.Close()
	c, err := client.New(ts.URL, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer c.Close()
	for range 3 {
		a, err := c.Take(context.Background(), api.Take{Bucket: api.Bucket{Policy: "llm", Key: "user-17"}})
		if err != nil {
			fmt.Println("nobody decided:", err)
			return
		}
		fmt.Println(a.Allowed, a.Remaining)
	}
	// Output:
	// true 1
	// true 0
	// false 0
}

func ExampleClient_Reserve() {
	ts := exampleServer()
	defer ts.Close()
	c, err := client.New(ts.URL, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer c.Close()
	ctx := context.Background()
	res, a, err := c.Reserve(ctx, api.Take{
		Bucket: api.Bucket{Policy: "llm", Key: "team-a", Costs: api.Costs{"tokens": 600}}, WaitMS: 20_000,
		HoldMS: 30_000,
	})
	switch {
	case err != nil:
		fmt.Println("nobody decided:", err)
		return
	case res == nil:
		fmt.Println("refused:", a.Message)
		return
	}
	if err := res.Settle(ctx, api.Costs{"tokens": 321}); err != nil { // what was really used
		fmt.Println(err)
	}
	st, err := c.Status(ctx, api.StatusRequest{Bucket: api.Bucket{Policy: "llm", Key: "team-a"}})
	fmt.Println(st.Limits[1].Used, err)
	// Output: 321 <nil>
}
