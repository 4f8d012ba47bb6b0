package simulator_test

import (
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/drawgate/drawgate/llm/simulator"
)

func Example() {
	quotas, err := simulator.Preset("gemini-free")
	if err != nil {
		panic(err)
	}
	if err := simulator.Override(quotas, "gemini-2.5-flash/rpm", 2); err != nil {
		panic(err)
	}
	sim, err := simulator.New(&simulator.Options{Quotas: quotas})
	if err != nil {
		panic(err)
	}
	client := &http.Client{Transport: sim.Transport()} // in this process: no network

	for range 3 {
		const url = "http://gemini/v1beta/models/gemini-2.5-flash:generateContent"
		body := `{"contents": [{"parts": [{"text": "Hello!\nsimulate: output=20"}]}]}`
		resp, err := client.Post(url, "application/json", strings.NewReader(body))
		if err != nil {
			panic(err)
		}
		resp.Body.Close()
		fmt.Println(resp.Status)
	}
	fmt.Println("violations:", sim.Violations().Total)
	for _, l := range sim.Report(time.Time{}).Limits {
		fmt.Println(l.Limit, "worst window:", l.Worst, "of", l.Amount)
	}
	// Output:
	// 200 OK
	// 200 OK
	// 429 Too Many Requests
	// violations: 1
	// rpd worst window: 2 of 250
	// rpm worst window: 2 of 2
	// tpm worst window: 32 of 250000
}
