// Command tiers keeps a batch of tasks inside five limits together, from a minute to a month, in a
// SQLite file that any number of processes share and that survives restarts. Run it several times.
package main

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/store/sqlitestore"
)

const day = 24 * time.Hour

var quota = drawgate.Policy{Name: "tasks", Limits: []drawgate.Limit{
	drawgate.RollingLimit("minute", 20, time.Minute),
	drawgate.RollingLimit("hour", 100, time.Hour),
	drawgate.RollingLimit("day", 500, day),
	drawgate.RollingLimit("week", 2000, 7*day),
	drawgate.CalendarLimit("month", 7500, drawgate.Month, "Europe/Berlin"), // the first of the month, local time
}}

func main() {
	if err := run(context.Background(), "tasks.db"); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, path string) error {
	store, err := sqlitestore.Open(path, nil)
	if err != nil {
		return err
	}
	defer func() { _ = store.Close() }()
	// A batch job would rather wait for a busy disk than not know.
	lim, err := drawgate.New(store, quota, &drawgate.Options{StoreTimeout: 5 * time.Second})
	if err != nil {
		return err
	}
	const tasks = 8 // all of them, or none
	d, err := lim.Allow(ctx, "batch", drawgate.Requests(tasks))
	if err != nil {
		return err
	}
	if !d.Allowed {
		r, _ := d.Refusing()
		fmt.Printf("refused by the limit per %s: %d left, try again in %v\n", r.Limit.Name, r.Remaining,
			d.RetryAfter.Round(time.Second))
		return nil
	}
	for r := range d.Limits() {
		fmt.Printf("%-6s %4d of %4d left\n", r.Limit.Name, r.Remaining, r.Limit.Amount)
	}
	return nil
}
