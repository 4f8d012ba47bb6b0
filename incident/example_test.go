package incident_test

import (
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/incident"
	"github.com/drawgate/drawgate/llm"
	"github.com/drawgate/drawgate/llm/simulator"
	"github.com/drawgate/drawgate/outbound"
	"github.com/drawgate/drawgate/store/memstore"
)

// A program's own calls are recorded as the gateway's are: the Recorder's observer is told of them.
// Here the policy allows 10 requests a minute, and the provider, a simulated one, only 2, which
// somebody else has used already.
func Example() {
	dir, err := os.MkdirTemp("", "incidents")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	rec := incident.New(&incident.Options{
		File:   filepath.Join(dir, "incidents.jsonl"),
		Logger: slog.New(slog.DiscardHandler),
	})

	store := memstore.New(nil)
	defer store.Close()
	lim, err := drawgate.New(store, drawgate.Policy{
		Name:   "gpt-4o",
		Limits: []drawgate.Limit{drawgate.RollingLimit("rpm", 10, time.Minute)},
	}, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	provider, err := simulator.New(&simulator.Options{Quotas: []simulator.Quota{{
		Provider: simulator.OpenAI, Name: "gpt", Models: []string{"*"},
		Limits: []simulator.Limit{{
			Name: "rpm", Dimension: simulator.Requests, Amount: 2, Window: simulator.Rolling,
			Period: time.Minute,
		}},
	}}})
	if err != nil {
		fmt.Println(err)
		return
	}
	calls := outbound.New(outbound.PerModel("project-1", lim),
		&outbound.Options{Upstream: "openai", Observer: rec.Observer()})
	sdk := &http.Client{Transport: outbound.NewTransport(calls, llm.OpenAI(),
		&outbound.TransportOptions{Base: provider.Transport()})}
	for _, client := range []*http.Client{{Transport: provider.Transport()}, {Transport: provider.Transport()}, sdk} {
		resp, err := client.Post("https://api.openai.com/v1/chat/completions", "application/json",
			strings.NewReader(`{"model":"gpt-4o","messages":[{"role":"user","content":"Hello!"}]}`))
		if err != nil {
			fmt.Println(err)
			return
		}
		resp.Body.Close()
	}
	if err := rec.Close(); err != nil {
		fmt.Println(err)
		return
	}
	list, _, err := incident.Read(filepath.Join(dir, "incidents.jsonl"))
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, in := range list {
		fmt.Println(in.Summary)
		fmt.Println(in.Diagnosis[0])
	}
	// Output:
	// openai refused a call of gpt-4o for its limit per minute (requests), although our limits had allowed it
	// the provider says that its limit is 2 requests, and limit gpt-4o/rpm allows 10: set its amount to 2
}
