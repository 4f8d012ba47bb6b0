package guard_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/internal/needs"
	"github.com/drawgate/drawgate/store"
	"github.com/drawgate/drawgate/store/guard"
	"github.com/drawgate/drawgate/store/memstore"
)

// begin starts a process whose connection to a store has a mood.
func begin(t *testing.T, store store.Store, m mood, opts guard.Options) (*guard.Store, *faulty) {
	t.Helper()
	f := &faulty{Store: store}
	f.set(m)
	return guarded(t, f, &opts), f
}

// starting returns a plan of one limit whose policy starts in this way.
func starting(t *testing.T, start drawgate.Start, l drawgate.Limit) (drawgate.Policy, *store.Plan) {
	t.Helper()
	l.Name = "l"
	p := drawgate.Policy{Name: "p", Start: start, Fallback: drawgate.FallbackShare, Limits: []drawgate.Limit{l}}
	return p, compile(t, p)
}

// bounded returns what guard.Bound prints for the policy and so many starts.
func bounded(t *testing.T, p drawgate.Policy, instances, starts, returns int) guard.Line {
	t.Helper()
	lines, err := guard.Bound([]drawgate.Policy{p}, instances)
	if err != nil {
		t.Fatal(err)
	}
	return lines[0].AfterStarts(starts, returns)
}

// reached fails the test unless 90 to 100 % of a bound are reached.
func reached(t *testing.T, what string, got, bound int64) {
	t.Helper()
	if got > bound || 10*got < 9*bound {
		t.Errorf("%s: %d beyond the limit, want 90 to 100 %% of %d", what, got, bound)
	}
}

// TestStartsInAnOutageReachTheirBound: one process used everything when the store went away, the
// others admit their shares, and processes start in the place of one that ended. They are admitted
// what the bound says, and no more, also in a later window.
//
// req: A10, D10
func TestStartsInAnOutageReachTheirBound(t *testing.T) {
	needs.NoRace(t) // as above
	t.Parallel()
	const hour = time.Hour
	type outage struct {
		start             drawgate.Start
		instances, starts int
		limit             drawgate.Limit
		first             int64 // what the first process admits that starts
	}
	for _, c := range needs.Cases(3,
		outage{drawgate.StartClosed, 3, 2, rolling(60, hour), 0},
		outage{drawgate.StartCold, 3, 1, rolling(60, hour), 6}, // three servers, of which one starts
		outage{drawgate.StartCold, 3, 5, rolling(60, hour), 6}, // five restarts of one
		outage{drawgate.StartCold, 3, 5, leaky(60, hour, 0), 6},
		outage{drawgate.StartCold, 3, 2, daily(60), 6},
		outage{drawgate.StartCold, 3, 2, rolling(3, hour), 1},
		outage{drawgate.StartCold, 3, 2, rolling(2, hour), 0},
		outage{drawgate.StartCold, 1, 2, rolling(10, hour), 5},
		outage{drawgate.StartFull, 1, 2, rolling(10, hour), 10},
		outage{drawgate.StartFull, 1, 1, daily(10), 10},
	) {
		t.Run(fmt.Sprintf("%v %d %d %v %d", c.start, c.instances, c.starts, c.limit.Kind, c.limit.Amount),
			func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					store, opts := memstore.New(nil), guard.Options{Instances: c.instances}
					p, plan := starting(t, c.start, c.limit)
					line := bounded(t, p, c.instances, c.starts, 0)
					guards, ways := make([]*guard.Store, c.instances), make([]*faulty, c.instances)
					for i := range guards {
						guards[i], ways[i] = begin(t, store, well, opts)
					}
					window := c.limit.Window
					if c.limit.Kind == drawgate.Calendar {
						window = 24 * hour
					}
					time.Sleep(2 * window) // nothing counts any more of what may have been used before they started
					n := drain(t, guards[0], plan, "k")
					for _, w := range ways {
						w.set(refuses)
					}
					for _, g := range guards {
						n += drain(t, g, plan, "k")
					}
					for range c.starts {
						guards[0], _ = begin(t, store, refuses, opts)
						got := drain(t, guards[0], plan, "k")
						if n += got; got != c.first {
							t.Errorf("a process that starts is admitted %d, want %d", got, c.first)
						}
					}
					reached(t, "the window of the loss", n-line.Most, line.Extra)
					time.Sleep(window)
					n = 0
					for _, g := range guards {
						n += drain(t, g, plan, "k")
					}
					for range c.starts {
						g, _ := begin(t, store, refuses, opts)
						n += drain(t, g, plan, "k")
					}
					reached(t, "a later window", max(0, n-line.Most), line.After)
				})
			})
	}
}

// TestAStartBetweenTwoOutages: what ended processes had not delivered is forgotten, within the
// bound.
//
// req: A10
func TestAStartBetweenTwoOutages(t *testing.T) {
	t.Parallel()
	for _, start := range []drawgate.Start{drawgate.StartClosed, drawgate.StartCold, drawgate.StartFull} {
		synctest.Test(t, func(t *testing.T) {
			store, opts := memstore.New(nil), guard.Options{Instances: 1}
			p, plan := starting(t, start, rolling(10, time.Hour))
			line := bounded(t, p, 1, 1, 1)
			first, way := begin(t, store, well, opts)
			time.Sleep(2 * time.Hour)
			way.set(refuses)
			n := drain(t, first, plan, "k") // and ends without having delivered it
			second, way := begin(t, store, refuses, opts)
			n += drain(t, second, plan, "k")
			way.set(well)
			wantBack(t, second, 2*time.Second)
			n += drain(t, second, plan, "k")
			way.set(refuses)
			n += drain(t, second, plan, "k")
			reached(t, start.String(), n-line.Most, line.Extra+line.Returned)
		})
	}
}

// TestInstancesThatAreNotCountedGoOn: with counted instances a process that starts during an outage
// has a part of its share in each window, as long as it is not counted; so has one that started
// shortly before. All of them together stay within the bound.
//
// req: A10, E7
func TestInstancesThatAreNotCountedGoOn(t *testing.T) {
	needs.NoRace(t) // a guard alone looks for its store for hours
	t.Parallel()
	type outage struct {
		start   drawgate.Start
		atLeast int
		limit   drawgate.Limit
		part    int64
	}
	for _, c := range needs.Cases(2,
		outage{drawgate.StartCold, 2, rolling(40, time.Hour), 10},
		outage{drawgate.StartCold, 0, rolling(40, time.Hour), 10}, // at least two
		outage{drawgate.StartCold, 3, rolling(40, time.Hour), 4},
		outage{drawgate.StartFull, 2, rolling(40, time.Hour), 10}, // cold
		outage{drawgate.StartCold, 2, rolling(2, time.Hour), 1},
		outage{drawgate.StartCold, 2, rolling(1, time.Hour), 0}, // no share
		outage{drawgate.StartCold, 2, leaky(40, time.Hour, 0), 10},
		outage{drawgate.StartClosed, 2, rolling(40, time.Hour), 0},
	) {
		t.Run(fmt.Sprintf("%v %d %v %d", c.start, c.atLeast, c.limit.Kind, c.limit.Amount), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				const cold = 3
				opts := guard.Options{CountInstances: true, Instances: c.atLeast, Owner: func() bool { return false }}
				store := memstore.New(nil)
				p, plan := starting(t, c.start, c.limit)
				lines, err := guard.BoundCounted([]drawgate.Policy{p}, 2, c.atLeast)
				if err != nil {
					t.Fatal(err)
				}
				line := lines[0].AfterStarts(cold, 0)
				var guards []*guard.Store
				var ways []*faulty
				add := func(m mood) *guard.Store {
					g, w := begin(t, store, m, opts)
					guards, ways = append(guards, g), append(ways, w)
					return g
				}
				add(well)
				add(well)
				time.Sleep(3 * time.Hour)
				young := add(refuses) // so that it is not counted before the outage
				synctest.Wait()
				ways[2].set(well)
				if got := drain(t, young, plan, "its own"); got != c.limit.Amount {
					t.Errorf("the store admits %d, want %d", got, c.limit.Amount)
				}
				n := drain(t, guards[0], plan, "k")
				for _, w := range ways {
					w.set(refuses)
				}
				n += drain(t, guards[0], plan, "k") + drain(t, guards[1], plan, "k")
				check := func(g *guard.Store, when string) {
					t.Helper()
					got := drain(t, g, plan, "k")
					if n += got; got != c.part {
						t.Errorf("%s it is admitted %d, want %d", when, got, c.part)
					}
				}
				check(young, "a young process: ")
				if got := drain(t, young, plan, "its own"); got != 0 {
					t.Errorf("a young process is admitted %d units beside those that the store gave it", got)
				}
				check(add(refuses), "a process that starts: ")
				check(add(refuses), "another one: ")
				if n-line.Most > line.Extra {
					t.Errorf("the window of the loss: %d beyond the limit, want at most %d", n-line.Most, line.Extra)
				}
				for range 3 {
					time.Sleep(time.Hour)
					n = drain(t, guards[0], plan, "k") + drain(t, guards[1], plan, "k")
					for _, g := range guards[2:] {
						check(g, "in a later window ")
					}
					if over := n - line.Most; over > line.After {
						t.Errorf("a later window: %d beyond the limit, want at most %d", over, line.After)
					}
				}
				for _, w := range ways {
					w.set(well)
				}
				time.Sleep(3 * time.Hour)
				for _, w := range ways {
					w.set(refuses)
				}
				time.Sleep(time.Hour)
				if got, want := drain(t, young, plan, "k"), c.limit.Amount/5; got != want {
					t.Errorf("counted, it is admitted %d, want its share %d", got, want)
				}
			})
		})
	}
}

// TestAnyAnswerOfTheStoreIsKnown: a process that started shortly before the outage admits what the
// store last said to be free, be it in a refusal or in a status.
//
// req: A10, D10, E3
func TestAnyAnswerOfTheStoreIsKnown(t *testing.T) {
	t.Parallel()
	for name, ask := range map[string]func(t *testing.T, g *guard.Store, plan *store.Plan){
		"a refusal": func(t *testing.T, g *guard.Store, plan *store.Plan) {
			if take(t, g, plan, "k", 11).Allowed {
				t.Error("11 of 10 are admitted")
			}
		},
		"a status": func(t *testing.T, g *guard.Store, plan *store.Plan) { used(t, g, plan, "k") },
	} {
		for _, start := range []drawgate.Start{drawgate.StartClosed, drawgate.StartCold, drawgate.StartFull} {
			for _, before := range []int64{0, 3, 10} {
				t.Run(fmt.Sprint(name, start, before), func(t *testing.T) {
					t.Parallel()
					synctest.Test(t, func(t *testing.T) {
						store := memstore.New(nil)
						_, plan := starting(t, start, rolling(10, time.Hour))
						if before > 0 {
							take(t, store, plan, "k", before)
						}
						g, way := begin(t, store, well, guard.Options{Instances: 1})
						ask(t, g, plan)
						way.set(refuses)
						if got := drain(t, g, plan, "k"); got != 10-before {
							t.Errorf("%d are admitted of the 10 of which %d were used", got, before)
						}
					})
				})
			}
		}
	}
}

// TestARefusalSaysThatUsageIsUnknown: what a process does not know is not called a share that is
// used up.
func TestARefusalSaysThatUsageIsUnknown(t *testing.T) {
	t.Parallel()
	for _, start := range []drawgate.Start{drawgate.StartClosed, drawgate.StartCold, drawgate.StartFull} {
		synctest.Test(t, func(t *testing.T) {
			_, plan := starting(t, start, rolling(10, time.Hour))
			g, _ := begin(t, memstore.New(nil), refuses, guard.Options{Instances: 1})
			drain(t, g, plan, "k")
			d := take(t, g, plan, "k", 1)
			if want := start != drawgate.StartFull; d.UsageUnknown != want || d.Reason != store.Limited {
				t.Errorf("%v: unknown %v, reason %v, want %v", start, d.UsageUnknown, d.Reason, want)
			}
			time.Sleep(time.Hour)
			drain(t, g, plan, "k")
			if d := take(t, g, plan, "k", 1); d.Allowed || d.UsageUnknown {
				t.Errorf("%v, an hour later: allowed %v, unknown %v", start, d.Allowed, d.UsageUnknown)
			}
		})
	}
}

// TestUnknownUseWithSeveralAmounts: takes of one bucket may have several amounts, by rules. What a
// process does not know counts for each of them, in whichever order they come: those who start are
// admitted what the bound says.
//
// req: A10
func TestUnknownUseWithSeveralAmounts(t *testing.T) {
	t.Parallel()
	for _, start := range []drawgate.Start{drawgate.StartClosed, drawgate.StartCold} {
		for _, kind := range []func(n int64) drawgate.Limit{
			func(n int64) drawgate.Limit { return rolling(n, time.Hour) },
			func(n int64) drawgate.Limit { return leaky(n, time.Hour, 0) },
			daily,
		} {
			for _, seen := range []string{"nothing", "refusal", "look"} {
				laterBubble(t, func(t *testing.T) {
					store, opts := memstore.New(nil), guard.Options{Instances: 1}
					_, small := starting(t, start, kind(10))
					p, large := starting(t, start, kind(100))
					line := bounded(t, p, 1, 1, 0)
					drain(t, store, large, "k")
					m := well
					if seen == "nothing" {
						m = refuses
					}
					g, way := begin(t, store, m, opts)
					switch seen {
					case "refusal":
						take(t, g, small, "k", 1)
					case "look":
						look(t, g, small)
					}
					way.set(refuses)
					n := drain(t, g, small, "k")
					n += drain(t, g, large, "k")
					if most := line.Extra; n > most || seen != "nothing" && n > 0 {
						t.Errorf("%v, %v, %s: %d beyond the limit, want at most %d", start,
							large.Policy().Limits[0].Kind, seen, n, most)
					}
				})
			}
		}
	}
}

// laterBubble runs a test two days after its clock began, so that instants of before are no special
// case.
func laterBubble(t *testing.T, f func(t *testing.T)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(48 * time.Hour)
		f(t)
	})
}
