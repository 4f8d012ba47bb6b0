//go:build long

package redisstore_test

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/internal/linetest"
	"github.com/drawgate/drawgate/internal/redistest"
	"github.com/drawgate/drawgate/store"
)

// serversOf starts the servers that lines are tested on.
var serversOf = map[string]func(t *testing.T) (url string, all []*redistest.Server){
	"standalone": func(t *testing.T) (string, []*redistest.Server) {
		t.Helper()
		s := redistest.Start(t)
		return s.URL(), []*redistest.Server{s}
	},
	"cluster": func(t *testing.T) (string, []*redistest.Server) {
		t.Helper()
		c := redistest.StartCluster(t, false)
		return c.URL(), c.Primaries
	},
}

// TestIdleLineLong: 64 waiters in 8 processes, for whom nothing comes free, make fewer than 20
// calls of the store a second in all.
//
// req: C5, E2
func TestIdleLineLong(t *testing.T) {
	const lasts = 10 * time.Second
	day := drawgate.Policy{Name: "day", Limits: []drawgate.Limit{drawgate.RollingLimit("l", 1, 24*time.Hour)}}
	for on, start := range serversOf {
		url, servers := start(t)
		s := openURL(t, url, nil)
		for _, spec := range []lineSpec{slotSpec, {Policy: day}} {
			t.Run(on+", "+spec.Policy.Name, func(t *testing.T) {
				f := &lineTrial{t: t, spec: spec}
				f.spec.URL, f.spec.Keys, f.spec.Waiters = url, []string{"k"}, lineProcesses
				lim := unhurried(t, s, spec.Policy)
				if spec.Hold > 0 {
					blockSlot(t, s, lim, f.spec.Keys)
				} else if d, err := lim.Allow(t.Context(), "k"); err != nil || !d.Allowed {
					t.Fatal(d, err)
				}
				f.lineUp(lineProcesses)
				time.Sleep(3 * time.Second)
				before := commands(servers)
				time.Sleep(lasts)
				after := commands(servers)
				calls := 0.0
				for name, n := range after {
					if n -= before[name]; n > 0 {
						t.Logf("%s: %d", name, n)
					}
					if strings.HasPrefix(name, "eval") || name == "fcall" {
						calls += float64(n) / lasts.Seconds()
					}
				}
				t.Logf("%.1f calls of the store a second", calls)
				if calls >= 20 || calls == 0 {
					t.Errorf("%.1f calls of the store a second, want fewer than 20, and some", calls)
				}
				for _, p := range f.procs {
					p.end()
				}
			})
		}
	}
}

// commands returns how often each command was called on some servers.
func commands(servers []*redistest.Server) map[string]int64 {
	all := map[string]int64{}
	for _, s := range servers {
		for line := range strings.FieldsSeq(s.Do("INFO", "commandstats")) {
			name, rest, ok := strings.Cut(strings.TrimPrefix(line, "cmdstat_"), ":calls=")
			if n, _, _ := strings.Cut(rest, ","); ok {
				all[name] += integers(n)[0]
			}
		}
	}
	return all
}

// TestKilledInThrongLong kills one process after the other, or makes it stand still, while the
// callers of eight wait again and again. The units go to the others after 6 s at most.
//
// req: C5, A10
func TestKilledInThrongLong(t *testing.T) {
	const faults, apart = 3, 8 * time.Second
	for on, start := range serversOf {
		for _, kind := range lineKinds {
			for _, fault := range lineFaults {
				t.Run(on+", "+kind.name+", it "+fault.name, func(t *testing.T) {
					url, _ := start(t)
					f := &lineTrial{t: t, spec: kind.spec}
					f.spec.URL, f.spec.Keys = url, []string{"k", "l"}[:kind.keys]
					f.spec.Waiters, f.spec.Again = 8, true
					for range lineProcesses {
						f.start()
					}
					time.Sleep(3 * time.Second)
					for range faults {
						p := f.procs[len(f.procs)-1-rand.IntN(lineProcesses)]
						fault.happens(p)
						time.Sleep(apart)
						if fault.ends != nil {
							fault.ends(p)
						} else {
							f.start()
						}
					}
					all := f.throng()
					longest, gap := int64(0), int64(0)
					for i, s := range all {
						longest = max(longest, s.Granted-s.Began)
						if i > 0 {
							gap = max(gap, s.Granted-all[i-1].Granted)
						}
					}
					t.Logf("%d were served, %d overtaken; nobody was for %v; one waited %v", len(all), linetest.Overtaken(all),
						time.Duration(gap)*time.Microsecond, time.Duration(longest)*time.Microsecond)
					if gap > 6e6 {
						t.Error("nobody was served for more than 6 s")
					}
				})
			}
		}
	}
}

// throng ends the processes, and returns who was served in the order of the grants.
func (f *lineTrial) throng() (all []linetest.Served) {
	for _, p := range f.procs {
		_ = p.stdin.Close()
	}
	for _, p := range f.procs {
		p.end()
		for _, s := range p.served {
			all = append(all, linetest.Served{Began: s.began, Granted: s.at, Started: s.started})
		}
	}
	slices.SortFunc(all, func(a, b linetest.Served) int { return cmp.Compare(a.Granted, b.Granted) })
	return all
}

// TestFairBesideLeasesLong: callers wait in eight processes, three of which also decide by leases
// of the same bucket. Nothing is over, and who waits is served in order as well as without leases.
// If somebody waits all the time, those who do not wait get next to nothing; otherwise they get
// what is left.
//
// A limit that is leased has at least 5000 units at once. After each stall of a machine many units
// are free at the same time, and then the order is looser than that of TestFairLong, also without
// leases. So it is compared with that, where no process stalled.
//
// req: C5, E1
func TestFairBesideLeasesLong(t *testing.T) {
	rate := drawgate.BucketLimit("l", 300, time.Second, atOnce)
	window := drawgate.RollingLimit("l", atOnce, 10*time.Second)
	for _, c := range []struct {
		name    string
		waiters int           // in each process
		pause   time.Duration // of who was served, in the mean
		limit   drawgate.Limit
		ordered bool // there are no more waiters than tickets, and units come one by one
	}{
		{"always a line", 7, 0, rate, true},
		{"a line at times", 50, 2 * time.Second, rate, true},
		{"always a long line", 50, 0, rate, false},
		{"a window", 50, 2 * time.Second, window, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			var overtaken [2]float64
			stalled := int64(0)
			for with := range 2 {
				f := &lineTrial{t: t, spec: lineSpec{
					URL: redistest.Start(t).URL(), Keys: []string{"k"}, Waiters: c.waiters, Again: true, Pause: c.pause,
					Policy: drawgate.Policy{Name: "leased", Leased: true, Limits: []drawgate.Limit{c.limit}},
				}}
				overtaken[with] = f.besideLeases(c.limit, 3*with)
				stalled = max(stalled, f.late())
			}
			t.Logf("%.2f %% overtaken without leases, %.2f %% with them; a process stalled for %d µs", 100*overtaken[0],
				100*overtaken[1], stalled)
			if c.ordered && stalled < stall && overtaken[1] > 2*overtaken[0]+0.0064 {
				t.Error("leases disturb the order")
			}
		})
	}
}

// besideLeases lets callers wait, and others ask, some of them in processes with leases. It returns
// which part of those who waited were overtaken.
func (f *lineTrial) besideLeases(l drawgate.Limit, leases int) float64 {
	f.t.Helper()
	first := useUp(f.t, openURL(f.t, f.spec.URL, nil), f.spec.Policy)
	for i := range lineProcesses {
		f.spec.Leases, f.spec.Askers = i < leases, 0
		if i < 3 {
			f.spec.Askers = 16
		}
		f.start()
	}
	time.Sleep(20 * time.Second)
	return f.judgeLeases(l, first, nowMicro())
}

// late returns by how many µs a process was woken too late at most.
func (f *lineTrial) late() (most int64) {
	for _, p := range f.procs {
		most = max(most, p.late)
	}
	return most
}

// atOnce is what the limits allow at once.
const atOnce = 5000

// useUp takes what a limit allows at once.
func useUp(t *testing.T, s store.Store, p drawgate.Policy) grant {
	t.Helper()
	plan, sent := compile(t, p.Name, p.Limits...), nowMicro()
	if d := take(t, s, takeOf(plan, "k", atOnce)); !d.Allowed {
		t.Fatalf("%+v", d)
	}
	return grant{atOnce, sent, nowMicro()}
}

// judgeLeases ends the processes, and judges who waited in them, and who did not. first is what was
// taken before. It returns which part of those who waited were overtaken.
func (f *lineTrial) judgeLeases(l drawgate.Limit, first grant, end int64) float64 {
	f.t.Helper()
	all, list := f.throng(), []grant{first}
	for _, s := range all {
		list = append(list, grant{1, s.Began, s.Started})
	}
	var asked [3]int64
	took := 0
	for _, p := range f.procs {
		list, took = append(list, p.took...), took+len(p.took)
		for i := range asked {
			asked[i] += p.asked[i]
		}
	}
	n, over := linetest.Overtaken(all), 0.0
	if l.Kind == drawgate.Bucket {
		over = mostBeside(list, float64(l.Amount)/1e6) - atOnce
	} else {
		over = float64(mostIn(list, l.Window.Microseconds()) - atOnce)
	}
	f.t.Logf("overtaken by whoever came over 10 ms later %d, 30 ms %d, 100 ms %d, 300 ms %d", n, overtaken(all, 30_000),
		overtaken(all, 100_000), overtaken(all, 300_000))
	share := float64(n) / float64(len(all))
	f.t.Logf("%d served who waited, %d (%.2f %%) of them overtaken; of %d takes that do not wait %d passed, %d were "+
		"refused, %d failed; %.1f a second passed in all; over by %.1f", len(all), n, 100*share, asked[0], took,
		asked[1], asked[2], float64(len(list)-1)/(float64(end-first.got)/1e6), max(0, over))
	if over > 0 {
		f.t.Errorf("over by %.1f", over)
	}
	return share
}

// overtaken returns how many were granted after somebody who began to wait so many µs later.
func overtaken(all []linetest.Served, by int64) (n int) {
	latest := int64(0)
	for _, s := range all {
		if latest > s.Began+by {
			n++
		}
		latest = max(latest, s.Began)
	}
	return n
}
