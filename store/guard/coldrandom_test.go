package guard_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/store"
	"github.com/drawgate/drawgate/store/guard"
	"github.com/drawgate/drawgate/store/memstore"
)

// coldRun is a random run of processes that lose their store together and come back, and in whose
// place others start. All of it lies within one window.
type coldRun struct {
	*testing.T
	r       *rand.Rand
	inner   store.Store
	opts    guard.Options
	mood    mood
	procs   []*coldProc
	plans   []*store.Plan // with different amounts, as by rules
	used    [2]int64      // of the units
	slots   int64         // most that were held at once
	starts  int
	returns int
	log     strings.Builder
}

type coldProc struct {
	g    *guard.Store
	way  *faulty
	held []string // ids
}

func (c *coldRun) launch() *coldProc {
	g, way := begin(c.T, c.inner, c.mood, c.opts)
	return &coldProc{g: g, way: way}
}

func (c *coldRun) step() {
	i := c.r.IntN(len(c.procs))
	p := c.procs[i]
	switch c.r.IntN(12) {
	case 0:
		if c.mood == well {
			c.mood = []mood{refuses, mute, stalls}[c.r.IntN(3)]
		} else {
			c.mood = well
			c.returns++
		}
		for _, o := range c.procs {
			o.way.set(c.mood)
		}
		fmt.Fprintf(&c.log, "mood %d\n", c.mood)
	case 1:
		c.starts++
		c.procs[i] = c.launch()
		fmt.Fprintf(&c.log, "process %d starts\n", i)
	case 2:
		time.Sleep(time.Duration(c.r.IntN(3000)) * time.Millisecond)
	case 3: // the configuration is loaded again
		c.plans[0] = compile(c.T, policyOf(c.plans[0]))
	case 4:
		if n := len(p.held); n > 0 {
			end(c.T, p.g, store.OpSettle, p.held[n-1], c.plans[0], "k", store.KeepEstimate, store.KeepEstimate, 0)
			p.held = p.held[:n-1]
		}
	default:
		c.take(i, p)
	}
}

func (c *coldRun) take(i int, p *coldProc) {
	plan, x, y := c.plans[c.r.IntN(2)], c.r.Int64N(4), c.r.Int64N(5)
	tk := store.Take{Buckets: []store.BucketCost{cost(plan, "k", x, y)}}
	if c.r.IntN(2) == 0 {
		tk.ID, tk.Hold = fmt.Sprint(c.log.Len(), c.r.Uint64()), 30*time.Minute
		tk.Grant, tk.Buckets[0].N[2] = grant(tk.ID), 1
	}
	d := send(c.T, p.g, tk)
	if !d.Allowed {
		return
	}
	fmt.Fprintf(&c.log, "process %d takes %v, here %v\n", i, tk.Buckets[0].N[:3], d.Fallback)
	c.used[0] += x
	c.used[1] += y
	if tk.ID != "" {
		p.held = append(p.held, tk.ID)
	}
	held := int64(0)
	for _, o := range c.procs {
		held += int64(len(o.held))
	}
	c.slots = max(c.slots, held)
}

// TestRandomStartsStayWithinTheirBound: whatever happens in an outage to takes of several limits,
// slots and processes, no more is admitted than the bound says.
//
// req: A1, A10
func TestRandomStartsStayWithinTheirBound(t *testing.T) {
	t.Parallel()
	seeds := uint64(300)
	if long {
		seeds = 20_000
	}
	for seed := range seeds {
		synctest.Test(t, func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 1))
			n, start := 1+r.IntN(3), drawgate.StartClosed+drawgate.Start(r.IntN(2))
			if n == 1 && r.IntN(3) == 0 {
				start = drawgate.StartFull
			}
			amount, tokens, slot := 5+r.Int64N(20), 10+r.Int64N(40), 3+r.Int64N(6)
			policy := func(amount, tokens int64) drawgate.Policy {
				p := drawgate.Policy{
					Name: "p", Start: start, Fallback: drawgate.FallbackShare,
					Limits: []drawgate.Limit{
						rolling(amount, time.Hour), rolling(tokens, 2*time.Hour), slots(slot),
					},
				}
				p.Limits[0].Name, p.Limits[1].Name, p.Limits[1].Unit, p.Limits[2].Name = "requests", "tokens", "tokens",
					"slots"
				return p
			}
			times := 1 + r.Int64N(4)
			policies := []drawgate.Policy{policy(amount, tokens), policy(amount*times, max(1, tokens/times))}
			lines, err := guard.Bound(policies, n)
			if err != nil {
				t.Fatal(err)
			}
			c := &coldRun{T: t, r: r, inner: memstore.New(nil), opts: guard.Options{Instances: n}}
			for _, p := range policies {
				c.plans = append(c.plans, compile(t, p))
			}
			for range n {
				c.procs = append(c.procs, c.launch())
			}
			time.Sleep(5 * time.Hour) // nothing counts any more of what may have been used before they started
			for range 60 {
				c.step()
			}
			for j, got := range []int64{c.used[0], c.used[1], c.slots} {
				l := lines[j].AfterStarts(c.starts, c.returns)
				if most := l.Most + l.Extra + l.Returned; got > most {
					t.Errorf("seed %d: %d processes, %v, %d starts, %d returns: %d of %s, want at most %d\n%s",
						seed, n, start, c.starts, c.returns, got, l.Limit, most, c.log.String())
				}
			}
		})
	}
}
