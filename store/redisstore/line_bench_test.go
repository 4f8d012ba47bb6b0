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
			reportServer(b, server)
		})
	}
}

// BenchmarkNaming is a take that is refused, and names waiters behind it of whom the store has not
// heard: how long the server needs for it.
func BenchmarkNaming(b *testing.B) {
	server := redistest.Start(b)
	s, plan := open(b, server, nil), oneIn(b, "p", time.Hour)
	for _, n := range []int{0, 31, 63, record.MaxNext} {
		b.Run(fmt.Sprint(n, " names"), func(b *testing.B) {
			ask := takeOf(plan, strconv.Itoa(n), 1)
			take(b, s, ask)
			w := waiting(ask, 1)
			for i := range n {
				w.Ticket.Next = append(w.Ticket.Next, store.Next{Number: uint64(2 + i), N: ask.Buckets[0].N})
			}
			server.Do("CONFIG", "RESETSTAT")
			for b.Loop() {
				for i := range w.Ticket.Next { // they came before all whose tickets are there
					w.Ticket.Next[i].Number += record.MaxNext
				}
				w.Ticket.Number += record.MaxNext
				w.Ticket.Waited += time.Millisecond
				take(b, s, w)
			}
			reportServer(b, server)
		})
	}
}

// reportServer reports how long the server needed for a call of the script.
func reportServer(b *testing.B, server *redistest.Server) {
	b.Helper()
	m := regexp.MustCompile(`cmdstat_evalsha:.*usec_per_call=([0-9.]+)`).FindStringSubmatch(server.Do("INFO", "commandstats"))
	us, err := strconv.ParseFloat(m[1], 64)
	if err != nil {
		b.Fatal(err)
	}
	b.ReportMetric(us, "server-µs/op")
}
