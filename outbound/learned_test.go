package outbound_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/engine"
	"github.com/drawgate/drawgate/llm"
	"github.com/drawgate/drawgate/llm/simulator"
	"github.com/drawgate/drawgate/outbound"
	"github.com/drawgate/drawgate/store/memstore"
)

// newQuota makes a quota of one policy under the owner "project".
type newQuota func(t *testing.T, store drawgate.Store, p drawgate.Policy) outbound.Quota

// quotas are both kinds of quotas.
var quotas = map[string]newQuota{
	"buckets": func(t *testing.T, store drawgate.Store, p drawgate.Policy) outbound.Quota {
		t.Helper()
		l, err := drawgate.New(store, p, nil)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { l.Close() })
		return outbound.Buckets(func(*outbound.Call) ([]drawgate.Ask,
			error,
		) {
			return []drawgate.Ask{{Limiter: l, Key: "project"}}, nil
		})
	},
	"engine": func(t *testing.T, store drawgate.Store, p drawgate.Policy) outbound.Quota {
		t.Helper()
		e, err := engine.New(store, engine.Config{Policies: []engine.Policy{{Policy: p}}}, nil)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { e.Close() })
		return &outbound.Policies{
			Engine: e, Owner: "project",
			Policy: func(string) (string, error) { return p.Name, nil },
		}
	},
}

// perQuota runs a test with each kind of quota, in a bubble of its own.
func perQuota(t *testing.T, test func(t *testing.T, quota newQuota)) {
	t.Helper()
	for kind, quota := range quotas {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { test(t, quota) })
		})
	}
}

// process is a process that calls one provider.
type process struct {
	*testing.T
	api     api
	rt      *outbound.Transport
	learned *llm.Learned
}

func newProcess(t *testing.T, name string, q outbound.Quota, base http.RoundTripper,
	change ...func(*llm.Profile),
) *process {
	t.Helper()
	p := &process{T: t, api: apis[name], learned: &llm.Learned{}}
	profile := p.api.profile()
	for _, f := range change {
		f(profile)
	}
	p.rt = outbound.NewTransport(outbound.New(q, nil), profile, &outbound.TransportOptions{
		Base: base, Learned: p.learned,
		Call: func(r *http.Request, _ *llm.Call, c *outbound.Call) error {
			c.NoWait = r.Context().Value(noWait{}) != nil
			return nil
		},
	})
	return p
}

type noWait struct{}

// call makes a call and returns the status of its answer.
func (p *process) call(ctx context.Context) (int, error) {
	p.Helper()
	resp, err := p.rt.RoundTrip(p.api.request(ctx, p.T, false, "Hello!"))
	if err != nil {
		return 0, err
	}
	_, _ = io.Copy(io.Discard, resp.Body)
	resp.Body.Close()
	return resp.StatusCode, nil
}

// all makes calls at the same time, which wait until they are granted.
func (p *process) all(n int) {
	p.Helper()
	var group sync.WaitGroup
	for range n {
		group.Go(func() {
			if status, err := p.call(p.Context()); status != http.StatusOK {
				p.Errorf("a call that was granted: status %d, %v", status, err)
			}
		})
	}
	group.Wait()
}

// now makes calls that do not wait until one is refused by our own quota, and returns how many were
// not.
func (p *process) now() (n int) {
	p.Helper()
	for ; n < 1000; n++ {
		switch _, err := p.call(context.WithValue(p.Context(), noWait{}, true)); {
		case errors.Is(err, drawgate.ErrLimited):
			return n
		case err != nil:
			p.Fatal(err)
		}
	}
	return n
}

// configured is what an operator who believes in larger limits has configured.
func configured() drawgate.Policy {
	p := units("quota")
	p.Limits[0] = drawgate.RollingLimit("rpm", 100, time.Minute)
	p.Limits[0].Margin = 2 * time.Second
	p.Limits = append(p.Limits, drawgate.CalendarLimit("rpd", 1000, drawgate.Day, "America/Los_Angeles"))
	return p
}

// smaller returns a provider with a limit of 5 requests a minute.
func smaller(t *testing.T, name string) *simulator.Server {
	t.Helper()
	a := apis[name]
	provider, _, _ := strings.Cut(name, " ")
	sim, err := simulator.New(&simulator.Options{Quotas: []simulator.Quota{{
		Provider: simulator.Provider(provider), Name: "small", Models: []string{a.model},
		Limits: []simulator.Limit{{Name: "rpm", Dimension: simulator.Requests, Window: simulator.Rolling, Amount: 5}},
	}}})
	if err != nil {
		t.Fatal(err)
	}
	return sim
}

// TestTakesObeyHeaders: after the first answer of a provider that tells smaller limits than the
// configured ones, it has nothing to refuse.
//
// req: C9
func TestTakesObeyHeaders(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"openai chat", "openai responses", "anthropic"} {
		for kind, quota := range quotas {
			t.Run(name+", "+kind, func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					sim, store := smaller(t, name), memstore.New(nil)
					defer store.Close()
					p := newProcess(t, name, quota(t, store, configured()), sim.Transport())
					p.all(1)
					p.all(30)
					if v := sim.Violations(); v.Total != 0 || len(sim.Calls()) != 31 {
						t.Errorf("%d of %d calls were refused by the provider", v.Total, len(sim.Calls()))
					}
				})
			})
		}
	}
}

// TestTakesObeyRefusals: a refusal that names the limit is the last one of its kind in this
// process.
//
// req: C9
func TestTakesObeyRefusals(t *testing.T) {
	t.Parallel()
	perQuota(t, func(t *testing.T, quota newQuota) {
		sim, store := smaller(t, "gemini"), memstore.New(nil)
		defer store.Close()
		p := newProcess(t, "gemini", quota(t, store, configured()), sim.Transport())
		p.all(5)
		if status, err := p.call(t.Context()); status != http.StatusTooManyRequests {
			t.Fatalf("the sixth call: status %d, %v", status, err)
		}
		p.all(30)
		if v := sim.Violations(); v.Total != 1 || len(sim.Calls()) != 36 {
			t.Errorf("%d of %d calls were refused by the provider, want one", v.Total, len(sim.Calls()))
		}
	})
}

// answering is a provider that tells a limit of requests in its headers, unless it is 0.
type answering struct{ limit int }

func (a *answering) RoundTrip(r *http.Request) (*http.Response, error) {
	_, _ = io.Copy(io.Discard, r.Body)
	h := http.Header{"Content-Type": {"application/json"}}
	if a.limit > 0 {
		h.Set("X-Ratelimit-Limit-Requests", strconv.Itoa(a.limit))
	}
	body := `{"choices":[{"message":{"content":"Hi"}}],"usage":{"prompt_tokens":5,"completion_tokens":1,"total_tokens":6}}`
	return &http.Response{
		StatusCode: http.StatusOK, Header: h, Body: io.NopCloser(strings.NewReader(body)),
		Request: r,
	}, nil
}

// TestLearnedAmountsChange: what is told replaces what was told before, never exceeds what is
// configured, and is forgotten after a day.
//
// req: C9
func TestLearnedAmountsChange(t *testing.T) {
	t.Parallel()
	perQuota(t, func(t *testing.T, quota newQuota) {
		store := memstore.New(nil)
		defer store.Close()
		p := units("quota")
		p.Limits[0].Amount = 10
		upstream := &answering{}
		c := newProcess(t, "openai chat", quota(t, store, p), upstream)
		for i, step := range []struct {
			tells int
			after time.Duration
			want  int
		}{
			{0, 0, 10},
			{5, time.Hour, 5},
			{8, time.Hour, 8},
			{50, time.Hour, 10},
			{3, time.Hour, 3},
			{0, 24*time.Hour - 2*time.Second, 3},
			{0, 2 * time.Minute, 10},
		} {
			time.Sleep(step.after)
			upstream.limit = step.tells
			if got := c.now(); got != step.want {
				t.Errorf("step %d: %d calls in a minute, want %d", i, got, step.want)
			}
		}
	})
}

// TestWaitingCallsObeyToo: calls that wait already are counted by what is learned meanwhile.
//
// req: C9
func TestWaitingCallsObeyToo(t *testing.T) {
	t.Parallel()
	perQuota(t, func(t *testing.T, quota newQuota) {
		store := memstore.New(nil)
		defer store.Close()
		p := units("quota")
		p.Limits[0].Amount = 6
		var mu sync.Mutex
		byMinute, start := map[int]int{}, time.Now()
		c := newProcess(t, "openai chat", quota(t, store, p), roundTrip(func(r *http.Request) (*http.Response, error) {
			mu.Lock()
			byMinute[int(time.Since(start).Minutes())]++
			mu.Unlock()
			return (&answering{}).RoundTrip(r)
		}))
		var group sync.WaitGroup
		group.Go(func() { c.all(6 + 10) })
		time.Sleep(30 * time.Second)
		c.learned.Note(llm.LimitKey{Family: "gpt-4o", Unit: drawgate.UnitRequests}, 2, time.Now())
		group.Wait()
		if got := fmt.Sprint(byMinute); got != "map[0:6 1:2 2:2 3:2 4:2 5:2]" {
			t.Errorf("calls by minutes: %s; want 6 in the first, and then 2 in each", got)
		}
	})
}

// TestSharesOfLearnedAmounts: the headroom holds for what was learned as well, unless it would
// leave nothing.
func TestSharesOfLearnedAmounts(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name  string
		limit drawgate.Limit
		tells int
		want  int
	}{
		{"in per cent", drawgate.RollingLimit("rpm", 100, time.Minute).WithHeadroom(drawgate.Percent(20)), 10, 8},
		{
			"more than there is", drawgate.RollingLimit("rpm", 100, time.Minute).
				WithHeadroom(drawgate.Share{Units: 20}),
			10, 10,
		},
		{"kept for others", drawgate.Limit{
			Name: "rpm", Kind: drawgate.Rolling, Window: time.Minute, Amount: 100,
			ReservedByPriority: map[int]drawgate.Share{5: {Units: 30}},
		}, 10, 10},
		{"a bucket", drawgate.BucketLimit("rpm", 60, time.Minute, 20), 5, 5},
		{"a bucket whose margin is all of it", drawgate.Limit{
			Name: "rpm", Kind: drawgate.Bucket, Window: time.Minute,
			Amount: 60, Margin: 5 * time.Second,
		}, 1, 1},
		{"the calendar's minutes", drawgate.CalendarLimit("rpm", 100, drawgate.Minute, ""), 5, 5},
		{"a limit per hour", drawgate.RollingLimit("rph", 12, time.Hour), 5, 12},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				store := memstore.New(nil)
				defer store.Close()
				p := newProcess(t, "openai chat", quotas["buckets"](t, store,
					drawgate.Policy{Name: "quota", Limits: []drawgate.Limit{c.limit}}), &answering{})
				p.learned.Note(llm.LimitKey{Family: "gpt-4o", Unit: drawgate.UnitRequests}, int64(c.tells), time.Now())
				if got := p.now(); got != c.want {
					t.Errorf("%d calls, want %d", got, c.want)
				}
			})
		})
	}
}

// TestMarginOfLearnedAmounts: where the headroom leaves nothing of what was learned, units still
// count as long as the upstream may count them.
//
// req: C1
func TestMarginOfLearnedAmounts(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New(nil)
		defer store.Close()
		limit := drawgate.RollingLimit("rpm", 100, time.Minute).WithHeadroom(drawgate.Share{Units: 20})
		limit.Margin = 5 * time.Second
		p := newProcess(t, "openai chat", quotas["buckets"](t, store,
			drawgate.Policy{Name: "quota", Limits: []drawgate.Limit{limit}}), &answering{})
		p.learned.Note(llm.LimitKey{Family: "gpt-4o", Unit: drawgate.UnitRequests}, 1, time.Now())
		for _, step := range []struct {
			after time.Duration
			want  int
		}{{0, 1}, {time.Minute + time.Second, 0}, {5 * time.Second, 1}} {
			time.Sleep(step.after)
			if got := p.now(); got != step.want {
				t.Errorf("%v later: %d calls, want %d", step.after, got, step.want)
			}
		}
	})
}

// TestModelsThatAreNotOffered: a model with a limit of 0 is asked for once a day, with a clear
// error in between. Other models of the same quota are not concerned.
//
// req: C1
func TestModelsThatAreNotOffered(t *testing.T) {
	t.Parallel()
	perQuota(t, func(t *testing.T, quota newQuota) {
		sim, err := simulator.New(&simulator.Options{Quotas: []simulator.Quota{
			{
				Provider: "gemini", Name: "none", Models: []string{"gemini-3-pro"}, FreeTier: true,
				Limits: []simulator.Limit{{Name: "rpd", Dimension: simulator.Requests, Window: simulator.Day}},
			},
			{Provider: "gemini", Name: "rest", Models: []string{"*"}},
		}})
		if err != nil {
			t.Fatal(err)
		}
		store := memstore.New(nil)
		defer store.Close()
		p := newProcess(t, "gemini", quota(t, store, configured()), sim.Transport())
		offered := p.api
		p.api.path = strings.Replace(p.api.path, p.api.model, "gemini-3-pro", 1)
		if status, err := p.call(t.Context()); status != http.StatusTooManyRequests {
			t.Fatalf("the first call: status %d, %v", status, err)
		}
		_, err = p.call(t.Context())
		if !errors.Is(err, outbound.ErrNotOffered) || !strings.Contains(err.Error(), `"gemini-3-pro"`) ||
			len(sim.Calls()) != 1 {
			t.Errorf("the second call: %v; the provider got %d calls, want one", err, len(sim.Calls()))
		}
		refused := p.api
		p.api = offered
		begin := time.Now()
		if status, err := p.call(t.Context()); status != http.StatusOK || !time.Now().Equal(begin) {
			t.Errorf("another model: status %d, %v, after %v", status, err, time.Since(begin))
		}
		p.api = refused
		time.Sleep(24 * time.Hour)
		if status, err := p.call(t.Context()); status != http.StatusTooManyRequests {
			t.Errorf("a day later: status %d, %v; want that it is sent", status, err)
		}
	})
}

// TestLongRefusals: a provider whose credit or budget is used up is left alone for as long as the
// refusal means, by every process that shares the store.
//
// req: C1
func TestLongRefusals(t *testing.T) {
	t.Parallel()
	pause := func(d time.Duration) func(*llm.Profile) { return func(p *llm.Profile) { p.CreditPause = d } }
	usual := func(*llm.Profile) {}
	for _, c := range []struct {
		name   string
		api    string
		fault  simulator.FaultKind
		change func(*llm.Profile)
		closed time.Duration // from noon UTC on the 20th of January
	}{
		{"credit", "openai chat", simulator.FaultCredit, usual, 5 * time.Minute},
		{"credit", "anthropic", simulator.FaultCredit, usual, 5 * time.Minute},
		{"credit", "gemini", simulator.FaultCredit, usual, 5 * time.Minute},
		{"credit that is asked for less often", "openai chat", simulator.FaultCredit, pause(time.Hour), time.Hour},
		{
			"credit that only an operator restores", "gemini", simulator.FaultCredit, pause(0),
			drawgate.MaxHold - time.Minute,
		},
		{"a monthly budget", "anthropic", simulator.FaultSpendCap, usual, 11*24*time.Hour + 12*time.Hour},
		{"a budget of ten minutes", "gemini", simulator.FaultSpendCap, usual, 10 * time.Minute},
	} {
		t.Run(c.name+" of "+c.api, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				time.Sleep(time.Until(time.Date(2000, 1, 20, 12, 0, 0, 0, time.UTC)))
				sim, err := simulator.New(nil)
				if err != nil {
					t.Fatal(err)
				}
				if err := sim.Inject(simulator.Fault{Kind: c.fault}); err != nil {
					t.Fatal(err)
				}
				store := memstore.New(nil)
				defer store.Close()
				first := newProcess(t, c.api, quotas["buckets"](t, store, configured()), sim.Transport(), c.change)
				other := newProcess(t, c.api, quotas["engine"](t, store, configured()), sim.Transport(), c.change)
				if status, err := first.call(t.Context()); err != nil || status < 400 {
					t.Fatalf("status %d, %v; want the provider's refusal", status, err)
				}
				now := context.WithValue(t.Context(), noWait{}, true)
				time.Sleep(c.closed - time.Second)
				for _, p := range []*process{first, other} {
					if _, err := p.call(now); !errors.Is(err, drawgate.ErrLimited) {
						t.Errorf("a second before it is over: %v, want that nothing is sent", err)
					}
				}
				time.Sleep(2 * time.Second)
				if status, err := other.call(now); status != http.StatusOK {
					t.Errorf("a second after it is over: status %d, %v", status, err)
				}
			})
		})
	}
}

// TestLoweredLimitsAreReported: an operator hears of a limit that takes no longer obey as it is
// configured, once for each amount, and not of one that the upstream grants in full.
func TestLoweredLimitsAreReported(t *testing.T) {
	t.Parallel()
	perQuota(t, func(t *testing.T, quota newQuota) {
		store := memstore.New(nil)
		defer store.Close()
		p := units("quota")
		p.Limits[0].Amount = 10
		var heard []string
		observer := outbound.Join(&outbound.Observer{}, nil, &outbound.Observer{Lowered: func(l *outbound.Lowered) {
			heard = append(heard, fmt.Sprintf("%s %s %s/%s %d to %d", l.Upstream, l.Model, l.Policy, l.Limit.Name,
				l.Limit.Amount, l.Amount))
		}})
		upstream := &answering{}
		c := newProcess(t, "openai chat", quota(t, store, p), upstream)
		c.rt = outbound.NewTransport(outbound.New(quota(t, store, p),
			&outbound.Options{Upstream: "openai", Observer: observer}), llm.OpenAI(),
			&outbound.TransportOptions{Base: upstream, Learned: c.learned})
		for _, limit := range []int{0, 10, 50, 5, 5, 3, 5} {
			upstream.limit = limit
			c.all(2) // the second obeys what the first was answered
			time.Sleep(time.Hour)
		}
		name := p.Name + "/" + p.Limits[0].Name
		want := []string{"openai gpt-4o " + name + " 10 to 5", "openai gpt-4o " + name + " 10 to 3"}
		if !slices.Equal(heard, want) {
			t.Errorf("reported: %q, want %q", heard, want)
		}
	})
}
