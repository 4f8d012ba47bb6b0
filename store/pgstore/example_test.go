//nolint:testableexamples // there is no such server: TestExample calls makeCalls
package pgstore_test

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/store/pgstore"
)

// makeCalls makes as many calls of an API. Any number of processes run this at the same time:
// together they make at most 30 calls in any minute, and 500 in any 24 hours.
func makeCalls(ctx context.Context, url string, calls int) error {
	s, err := pgstore.Open(url, &pgstore.Options{Logger: slog.Default()})
	if err != nil {
		return err
	}
	defer s.Close()
	api, err := drawgate.New(s, drawgate.Policy{Name: "api", Limits: []drawgate.Limit{
		drawgate.RollingLimit("minute", 30, time.Minute),
		drawgate.RollingLimit("day", 500, 24*time.Hour),
	}}, nil)
	if err != nil {
		return err
	}

	for range calls {
		// In one line with the callers of all processes, until the call fits or ctx ends.
		if _, err := api.Wait(ctx, "customer-7"); err != nil {
			return err
		}
		// Call the API.
	}
	return nil
}

func Example() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Hour)
	defer cancel()
	url := "postgres://drawgate@db.example.com/quotas?sslmode=verify-full" // the password is in PGPASSWORD
	fmt.Println(makeCalls(ctx, url, 100))
}
