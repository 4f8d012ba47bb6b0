package outbound_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/llm"
	"github.com/drawgate/drawgate/llm/simulator"
	"github.com/drawgate/drawgate/outbound"
	"github.com/drawgate/drawgate/store/memstore"
)

// flash is the free tier of a model: 10 requests and 250,000 tokens a minute, 250 requests a day
// that starts at midnight in California. A call may reach the provider 2 s after it was granted.
var flash = drawgate.Policy{Name: "gemini-2.5-flash", Limits: []drawgate.Limit{
	{Name: "rpm", Kind: drawgate.Rolling, Window: time.Minute, Amount: 10, Margin: 2 * time.Second},
	{
		Name: "tpm", Unit: llm.UnitInputTokens, Kind: drawgate.Rolling, Window: time.Minute, Amount: 250_000,
		Margin: 2 * time.Second,
	},
	{
		Name: "rpd", Kind: drawgate.Calendar, Every: drawgate.Day, Zone: "America/Los_Angeles", Amount: 250,
		Margin: 2 * time.Second,
	},
}}

// A Transport below an HTTP client, or below an official SDK: every call waits for the quota, and
// is settled with what it used. The simulator stands in for the provider.
func ExampleTransport() {
	store := memstore.New(nil) // or a store that other processes share
	defer store.Close()
	lim, err := drawgate.New(store, flash, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	provider, err := simulator.New(nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	calls := outbound.New(outbound.PerModel("project-1", lim), nil)
	client := &http.Client{Transport: outbound.NewTransport(calls, llm.Gemini(),
		&outbound.TransportOptions{Base: provider.Transport()})}

	resp, err := client.Post("https://generativelanguage.googleapis.com/v1beta/models/gemini-2.5-flash:generateContent",
		"application/json",
		strings.NewReader(`{"contents":[{"parts":[{"text":"Name three colours."}]}]}`))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer resp.Body.Close()
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		fmt.Println(err)
		return
	}
	st, err := lim.Status(context.Background(), "project-1")
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(resp.Status)
	for i, l := range flash.Limits {
		fmt.Println(l.Name, st.States[i].Used, "of", l.Amount)
	}
	fmt.Println("circuit", calls.State().Circuit)
	// Output:
	// 200 OK
	// rpm 1 of 10
	// tpm 12 of 250000
	// rpd 1 of 250
	// circuit closed
}

// Limited counts every call of a function as a request of a model, and waits instead of failing.
func ExampleLimited() {
	store := memstore.New(nil)
	defer store.Close()
	lim, err := drawgate.New(store, drawgate.PerMinute("gemini-2.5-pro", 2), nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	calls := outbound.New(outbound.PerModel("project-1", lim), nil)
	invoke := outbound.Limited(calls, "gemini-2.5-pro", func(_ context.Context, question string) (string, error) {
		return "an answer to " + question, nil
	})

	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	for _, question := range []string{"one", "two", "three"} {
		answer, err := invoke(ctx, question)
		fmt.Println(answer, errors.Is(err, drawgate.ErrDeadline))
	}
	// Output:
	// an answer to one false
	// an answer to two false
	//  true
}

// Do holds an estimate while a function runs, and settles what it says it used.
func ExampleDo() {
	store := memstore.New(nil)
	defer store.Close()
	lim, err := drawgate.New(store, drawgate.Policy{Name: "agent", Limits: []drawgate.Limit{
		drawgate.RollingLimit("tpm", 1000, time.Minute).Of("tokens"),
	}}, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	calls := outbound.New(outbound.PerModel("project-1", lim), nil)
	call := outbound.Call{Model: "agent", Costs: []drawgate.Cost{drawgate.Tokens(600)}}
	answer, err := outbound.Do(context.Background(), calls, call,
		func(context.Context) (string, []drawgate.Cost, error) {
			return "42", []drawgate.Cost{drawgate.Tokens(120)}, nil
		})
	if err != nil {
		fmt.Println(err)
		return
	}
	st, err := lim.Status(context.Background(), "project-1", drawgate.Tokens(0))
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(answer, "for", st.States[0].Used, "tokens")
	// Output: 42 for 120 tokens
}
