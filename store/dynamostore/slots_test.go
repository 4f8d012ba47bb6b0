//go:build unix

package dynamostore_test

import (
	"bufio"
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/internal/awstest"
	"github.com/drawgate/drawgate/store/dynamostore"
	"github.com/drawgate/drawgate/store/guard"
)

// slotHold is how long a worker holds the slot: not much longer than what a new process knows of
// the time.
const slotHold = 1500 * time.Millisecond

// holdSlots holds the only slot of a bucket whenever it can. Some workers do so each time with a
// new store, whose clock knows little, and leave the end of the hold to the store, as a process
// does that ends; every second hold is renewed once. The others know the time well, as a process
// does that has asked for a while: they are the ones to get the slot early if it can be had early,
// and give it back.
func (w *running) holdSlots(conn http.RoundTripper) error {
	policy := drawgate.Policy{Name: "slots", Limits: []drawgate.Limit{{
		Name: "slots", Kind: drawgate.Concurrency,
		Amount: 1,
	}}}
	open := func() (*drawgate.Limiter, error) {
		return drawgate.New(w.open(conn), policy, &drawgate.Options{StoreTimeout: -1})
	}
	ctx, old := context.Background(), w.Rest == 1
	lim, err := open()
	for n := 0; time.Now().Before(w.End) && err == nil; n++ {
		var d drawgate.Decision
		var res *drawgate.Reservation
		d, res, err = lim.Take(ctx, drawgate.Request{
			Buckets: []drawgate.Ask{{Key: "one"}},
			Hold:    drawgate.Hold{For: slotHold},
		})
		began := w.micros()
		switch {
		case err != nil:
		case !d.Allowed:
			time.Sleep(5 * time.Millisecond)
		case old:
			w.note(began, w.micros())
			err = res.Cancel(ctx)
			time.Sleep(rand.N(time.Second))
		default:
			if n%2 == 1 {
				time.Sleep(slotHold / 3)
				err = res.Renew(ctx, slotHold)
			}
			w.note(began, res.Deadline().UnixMicro())
			time.Sleep(time.Until(res.Deadline()))
		}
		if !old && err == nil {
			lim, err = open()
		}
	}
	return err
}

// TestOneHolderOfASlot: processes that follow each other in a slot never hold it at the same time,
// although their holds end by themselves: each must stop before the store gives the slot to the
// next one.
func TestOneHolderOfASlot(t *testing.T) {
	t.Parallel()
	lasts := 8 * time.Second
	if long {
		lasts = time.Minute
	}
	server := empty(t)
	f := &fleet{t: t, dir: t.TempDir()}
	begin := time.Now()
	for i := range 4 {
		f.start(i, worker{
			URL: server.URL, Prefix: "slots", Log: "log", Every: 1, Rest: i % 2, Slot: true, Begin: begin,
			End: begin.Add(lasts),
		})
	}
	f.wait()
	type held struct{ from, to int64 }
	var all []held
	for _, name := range f.logs {
		file, err := os.Open(name)
		if err != nil {
			t.Fatal(err)
		}
		for l := bufio.NewScanner(file); l.Scan(); {
			var h held
			if _, err := fmt.Sscan(l.Text(), &h.from, &h.to); err != nil {
				t.Fatal(err)
			}
			all = append(all, h)
		}
		_ = file.Close()
	}
	slices.SortFunc(all, func(a, b held) int { return int(a.from - b.from) })
	if len(all) < 2 {
		t.Fatalf("the slot was held %d times: that shows nothing", len(all))
	}
	for i := range all[1:] {
		if over := all[i].to - all[i+1].from; over > 0 {
			t.Errorf("hold %d of %d: another process had the slot %d ms before its holder had to stop", i+1, len(all),
				over/1000)
		}
	}
}

// TestSlotsOfCountedInstances: programs as the documents describe them, with a guard that counts
// instances in the table within calls, share slots: no more are held at once than there are, each
// that is given back can be had again, and the guards' own slots are none of them.
func TestSlotsOfCountedInstances(t *testing.T) {
	t.Parallel()
	const slots = 2
	c, table := client(t, awstest.Dynalite(t))
	policy := drawgate.Policy{Name: "slots", Limits: []drawgate.Limit{{
		Name: "slots", Kind: drawgate.Concurrency,
		Amount: slots,
	}}}
	var guards []*guard.Store
	var lims []*drawgate.Limiter
	for range 3 {
		g := guard.New(dynamostore.New(c, table, nil), &guard.Options{
			CountInstances: true, CountInCalls: true,
			Timeout: time.Minute,
		})
		t.Cleanup(func() { _ = g.Close() })
		lim, err := drawgate.New(g.Full(), policy, nil)
		if err != nil {
			t.Fatal(err)
		}
		guards, lims = append(guards, g), append(lims, lim)
	}
	var held, most, granted atomic.Int64
	var all sync.WaitGroup
	for _, lim := range lims {
		for range 4 {
			all.Go(func() {
				for range 10 {
					d, res, err := lim.Take(t.Context(), drawgate.Request{
						Buckets: []drawgate.Ask{{Key: "k"}},
						Hold:    drawgate.Hold{For: time.Minute},
					})
					switch {
					case err != nil || d.Fallback:
						t.Errorf("fallback %t, %v", d.Fallback, err)
					case d.Allowed:
						granted.Add(1)
						for n := held.Add(1); n > most.Load(); {
							most.Store(n)
						}
						held.Add(-1) // before it is given back
						if err := res.Cancel(t.Context()); err != nil {
							t.Error(err)
						}
					}
				}
			})
		}
	}
	all.Wait()
	if most.Load() > slots || granted.Load() <= slots {
		t.Errorf("%d of %d slots were held at once, %d times in all", most.Load(), slots, granted.Load())
	}
	counted := 0
	for _, g := range guards {
		counted = max(counted, g.State().Instances)
	}
	if counted < 1 || counted > len(guards) {
		t.Errorf("%d instances were counted of %d", counted, len(guards))
	}
	st, err := lims[0].Status(t.Context(), "k")
	if err != nil || st.Open != 0 || st.States[0].Used != 0 {
		t.Errorf("%d slots are held in the end, %v", st.Open, err)
	}
}
