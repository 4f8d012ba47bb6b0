package redisstore_test

import (
	"fmt"
	"regexp"
	"strconv"
	"testing"
	"time"

	"github.com/drawgate/drawgate/internal/record"
	"github.com/drawgate/drawgate/internal/redistest"
	"github.com/drawgate/drawgate/store"
)

// BenchmarkBesideTickets is a take by somebody who does not wait, of a bucket for which others do:
// how long the server needs for it.
func BenchmarkBesideTickets(b *testing.B) {
	server := redistest.Start(b)
	s, plan := open(b, server, nil), oneIn(b, "p", time.Hour)
	for _, n := range []int{0, 1, 64, record.MaxTickets} {
		b.Run(fmt.Sprint(n, " tickets"), func(b *testing.B) {
			ask := takeOf(plan, strconv.Itoa(n), 1)
			take(b, s, ask)
			if n > 0 { // they live for five seconds
				w := waiting(ask, 1)
				for i := range n - 1 {
					w.Ticket.Next = append(w.Ticket.Next, store.Next{Number: uint64(2 + i), N: ask.Buckets[0].N})
				}
				take(b, s, w)
				if got := len(lineOf(b, s, ask).Tickets); got != n {
					b.Fatalf("%d tickets", got)
				}
			}
			server.Do("CONFIG", "RESETSTAT")
			for b.Loop() {
				take(b, s, ask)
			}
			m := regexp.MustCompile(`cmdstat_evalsha:.*usec_per_call=([0-9.]+)`).FindStringSubmatch(server.Do("INFO", "commandstats"))
			us, err := strconv.ParseFloat(m[1], 64)
			if err != nil {
				b.Fatal(err)
			}
			b.ReportMetric(us, "server-µs/op")
		})
	}
}
