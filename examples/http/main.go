// Command http asks a Drawgate server from any language that speaks HTTP; here it is Go without a
// library. Start one first:
//
//	drawgate serve
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log"
	"net/http"
	"os"
	"time"

	"github.com/drawgate/drawgate/api"
)

// policy is the default policy of a server without configuration.
const policy = "sample"

func main() {
	base := "http://127.0.0.1:7878"
	if len(os.Args) > 1 {
		base = os.Args[1]
	}
	if err := run(context.Background(), base); err != nil {
		log.Fatal(err)
	}
}

// run holds units, works, and settles with what was used.
func run(ctx context.Context, base string) error {
	var a api.TakeAnswer
	take := api.Take{
		Bucket: api.Bucket{Policy: policy, Key: "user-17", Costs: map[string]int64{"requests": 3}},
		HoldMS: 10_000, WaitMS: 2_000,
	}
	if err := post(ctx, base+"/v1/take", take, &a); err != nil {
		return err
	}
	if !a.Allowed {
		fmt.Println("refused:", a.Message, "- try again in", time.Duration(a.RetryAfterMS)*time.Millisecond)
		return nil
	}
	fmt.Println("allowed:", a.Remaining, "left")
	var s api.SettleAnswer
	if err := post(ctx, base+"/v1/settle", api.SettleRequest{
		Reservation: a.Reservation,
		Used:        map[string]int64{"requests": 1},
	}, &s); err != nil {
		return err
	}
	fmt.Println(s.Outcome)
	return nil
}

// post sends a request. An answer that is not 200 is a problem, which is an error.
func post(ctx context.Context, url string, in, out any) error {
	body, err := json.Marshal(in)
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		return err
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = res.Body.Close() }()
	if res.StatusCode != http.StatusOK {
		var p api.Problem
		if err := json.NewDecoder(res.Body).Decode(&p); err != nil {
			return fmt.Errorf("%s: %w", res.Status, err)
		}
		return &p
	}
	return json.NewDecoder(res.Body).Decode(out)
}
