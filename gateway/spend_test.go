package gateway_test

import (
	"context"
	"crypto/sha256"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/audit"
	"github.com/drawgate/drawgate/gateway"
	"github.com/drawgate/drawgate/internal/syncbuffer"
	"github.com/drawgate/drawgate/llm"
	"github.com/drawgate/drawgate/spend"
)

// spent returns what meters have, by key.
func (b *bench) spent() map[spend.Meter]spend.Units {
	b.Helper()
	now := time.Now().UTC()
	rows, err := spend.Read(b.Context(), b.store, b.money, now.AddDate(0, 0, -40), now, "")
	if err != nil {
		b.Fatal(err)
	}
	got := map[spend.Meter]spend.Units{}
	for _, r := range rows {
		if r.Open != (spend.Units{}) {
			b.Errorf("%+v: %+v is open", r.Meter, r.Open)
		}
		got[r.Meter] = r.Used
	}
	return got
}

// told returns what the client's events say that calls used.
func (b *bench) reported() map[spend.Meter]spend.Units {
	b.mu.Lock()
	defer b.mu.Unlock()
	want := map[spend.Meter]spend.Units{}
	for i := range b.events {
		e := &b.events[i]
		if e.Granted.IsZero() {
			continue
		}
		m := spend.Meter{Day: e.Asked.UTC().Format(time.DateOnly), Upstream: e.Upstream, Model: e.Model}
		for _, l := range e.Labels {
			switch l.Name {
			case "key":
				m.Key = l.Value
			case "team":
				m.Team = l.Value
			}
		}
		u := want[m]
		for _, c := range e.Spent() {
			switch c.Unit {
			case "", drawgate.UnitRequests:
				u.Requests += c.N
			case llm.UnitPromptTokens:
				u.PromptTokens += c.N
			case llm.UnitAnswerTokens:
				u.AnswerTokens += c.N
			case b.money:
				u.Micros += c.N
			}
		}
		want[m] = u
	}
	maps.DeleteFunc(want, func(_ spend.Meter, u spend.Units) bool { return u == spend.Units{} })
	return want
}

// carol is the secret of a key without a team.
const carol = "vk-carol-0123456789"

// priced are prices for the models of the tests.
func priced() *llm.Prices {
	price := func(in, out int64) llm.Price {
		return llm.Price{Input: in, CacheRead: in / 10, CacheWrite: in * 5 / 4, Output: out}
	}
	return &llm.Prices{Currency: "eur", Models: map[string]llm.Price{
		"gpt-4o": price(2_500_000, 10_000_000), "gpt-4o-mini": price(150_000, 600_000),
		"claude-sonnet-4": price(3_000_000, 15_000_000), "claude-sonnet-4-5": price(3_000_000, 15_000_000),
		"gemini-2.5-flash": price(300_000, 2_500_000),
	}}
}

// TestSpend: over some days, callers of two teams and a key without one make calls of each
// provider, streamed or not, refused, failing, given up, answered by another model: each is counted
// by its team, key, upstream, model and day, with what the client, the ledger and the provider say.
// No answer shows a limit of the meters.
func TestSpend(t *testing.T) {
	t.Parallel()
	for seed := range uint64(4) {
		dir := t.TempDir()
		inBubble(t, func(s *setup) {
			s.ledger = dir
			s.config.Prices = priced()
			s.config.Keys = append(s.config.Keys, gateway.Key{Name: "carol", Sum: sha256.Sum256([]byte(carol))})
			s.policies = append(s.policies, drawgate.Policy{
				Name: "upstream", Limits: []drawgate.Limit{drawgate.RollingLimit("rpm", 20, time.Minute)},
			})
		}, func(t *testing.T, b *bench) {
			rng := rand.New(rand.NewPCG(seed, 2))
			kinds := []string{"openai", "responses", "anthropic", "gemini"}
			for range 150 {
				ctx, cancel := b.Context(), context.CancelFunc(func() {})
				if rng.IntN(6) == 0 { // the caller leaves
					ctx, cancel = context.WithTimeout(ctx, time.Duration(rng.Int64N(int64(2*time.Second))))
				}
				key := []string{alice, bob, carol}[rng.IntN(3)]
				name := kinds[rng.IntN(len(kinds))]
				head, _, _ := strings.Cut(apis[name].key, ": ")
				prefix := strings.TrimPrefix(apis[name].key, head+": ")
				got := b.do(b.request(ctx, name, rng.IntN(2) == 0, strings.Repeat("word ", 1+rng.IntN(300)),
					head+": "+prefix+key, "Drawgate-Timeout: 0"))
				cancel()
				for h, v := range got.header {
					if strings.Contains(strings.Join(v, " "), "drawgate:") {
						t.Errorf("header %s shows a meter: %q", h, v)
					}
				}
				if strings.Contains(got.body, "drawgate:") {
					t.Errorf("an answer shows a meter: %q", got.body)
				}
				if rng.IntN(3) == 0 {
					time.Sleep(time.Duration(rng.Int64N(int64(2 * time.Hour))))
				}
			}
			time.Sleep(2 * time.Minute) // holds end
			if diff := cmp.Diff(b.reported(), b.spent()); diff != "" {
				t.Errorf("seed %d: -client +store:\n%s", seed, diff)
			}
			rows, reported := b.countedTwice(dir)
			if len(rows) < 10 {
				t.Fatalf("%d rows", len(rows))
			}
			diff, doubtful := spend.Compare(rows, reported, b.money)
			if len(diff) > 0 || len(doubtful) > 0 || len(reported.Unended) > 0 || reported.Others > 0 {
				t.Errorf("seed %d: the ledger differs: %+v; not ended: %+v", seed, diff, reported.Unended)
			}
			rows[3].Used.Micros++
			if diff, _ := spend.Compare(rows, reported, b.money); len(diff) != 1 || diff[0].Meter != rows[3].Meter {
				t.Errorf("a millionth more is no difference: %+v", diff)
			}
		})
	}
}

// countedTwice returns what was spent, as the store has it and as the ledger in a folder tells it,
// which it closes.
func (b *bench) countedTwice(dir string) ([]spend.Row, *audit.Spent) {
	b.Helper()
	if err := b.ledger.Close(); err != nil {
		b.Fatal(err)
	}
	reported, err := audit.Spending(b.Context(), []string{dir},
		func(at time.Time) string { return at.UTC().Format(time.DateOnly) })
	if err != nil {
		b.Fatal(err)
	}
	now := time.Now().UTC()
	rows, err := spend.Read(b.Context(), b.store, b.money, now.AddDate(0, 0, -40), now, "")
	if err != nil {
		b.Fatal(err)
	}
	return rows, reported
}

// TestSpendOfOtherModel: what another model answers counts as of that model.
func TestSpendOfOtherModel(t *testing.T) {
	t.Parallel()
	inBubble(t, func(s *setup) {
		for i := range s.config.Upstreams {
			if u := &s.config.Upstreams[i]; u.Name == "openai" {
				u.Models = []gateway.Model{
					{Name: "gpt-4o", Policy: "few", Fallbacks: []string{"gpt-4o-mini"}},
					{Name: "*", Policy: "upstream"},
				}
			}
		}
		s.policies = append(s.policies, drawgate.Policy{
			Name: "few", Limits: []drawgate.Limit{drawgate.RollingLimit("rpm", 1, time.Hour)},
		})
	}, func(t *testing.T, b *bench) {
		for range 3 {
			if got := b.do(b.request(t.Context(), "openai", false, "hello",
				"Drawgate-Timeout: 0")); got.status != http.StatusOK {
				t.Fatal(got)
			}
		}
		models := map[string]int64{}
		for m, u := range b.spent() {
			models[m.Model] += u.Requests
		}
		if want := map[string]int64{"gpt-4o": 1, "gpt-4o-mini": 2}; !maps.Equal(models, want) {
			t.Errorf("%v, want %v", models, want)
		}
	})
}

// TestMeterRefusesNothing: a call that asks for tokens without end, one of which nobody hears, and
// costs in a currency of small worth leave a meter with room for others; and a call of which its
// meter is full passes all the same. The log speaks of that one, and not of what other limits
// refuse.
func TestMeterRefusesNothing(t *testing.T) {
	t.Parallel()
	var log syncbuffer.Buffer
	uncounted := func() int { return strings.Count(log.String(), "what a call spends is not counted") }
	inBubble(t, func(s *setup) {
		s.options.Logger = slog.New(slog.NewTextHandler(&log, nil))
		s.config.Prices = priced()
		s.config.Prices.Currency = "idr"
		for name, p := range s.config.Prices.Models {
			p.Input, p.Output = 10_000*p.Input, 10_000*p.Output
			s.config.Prices.Models[name] = p
		}
		s.policies = append(s.policies, drawgate.Policy{
			Name: "upstream", Limits: []drawgate.Limit{drawgate.RollingLimit("rpm", 1_000_000, time.Minute)},
		}, drawgate.Policy{
			Name: "small", Limits: []drawgate.Limit{{
				Name: "tpm", Unit: llm.UnitTokens, Kind: drawgate.Rolling, Amount: 10, Window: time.Minute,
			}},
		})
		for i := range s.config.Upstreams {
			u := &s.config.Upstreams[i]
			u.Models = append([]gateway.Model{{Name: "gpt-4o-mini", Policy: "small"}}, u.Models...)
		}
	}, func(t *testing.T, b *bench) {
		send := func(model string, most int64) int {
			body := fmt.Sprintf(`{"model":%q,"max_tokens":%d,"messages":[{"role":"user","content":"hello"}]}`, model, most)
			return b.do(b.raw(t.Context(), http.MethodPost, "/openai/v1/chat/completions", body,
				"Authorization: Bearer "+alice, "Drawgate-Timeout: 0")).status
		}
		for _, most := range []int64{100, 1_000_000_000_000, 100, 1_000_000_000_000, 100} {
			if got := send("gpt-4o", most); got == http.StatusTooManyRequests {
				t.Errorf("max_tokens %d: %d", most, got)
			}
		}
		for m, u := range b.spent() {
			if u.Requests != 5 || u.Micros <= 0 {
				t.Errorf("%+v: %+v", m, u)
			}
		}
		if got := send("gpt-4o-mini", 11); got == http.StatusOK || uncounted() > 0 {
			t.Errorf("a call that never fits: %d; the log: %s", got, log.String())
		}
		// Whoever fills a meter on purpose.
		m := spend.Meter{
			Day: time.Now().UTC().Format(time.DateOnly), Team: "red", Key: "alice", Upstream: "openai",
			Model: "gpt-4o",
		}
		lim, err := drawgate.New(b.store, spend.Policy(b.money), nil)
		if err != nil {
			t.Fatal(err)
		}
		tenant, key := m.Bucket()
		d, _, err := lim.Take(t.Context(), drawgate.Request{Buckets: []drawgate.Ask{{
			Limiter: lim, Tenant: tenant, Key: key,
			Costs: spend.Costs([]drawgate.Cost{drawgate.Requests(drawgate.MaxAmount - 5)}),
		}}})
		if err != nil || !d.Allowed {
			t.Fatal(d, err)
		}
		if got := send("gpt-4o", 100); got != http.StatusOK {
			t.Errorf("with a meter that is full: %d", got)
		}
		if n := uncounted(); n != 1 {
			t.Errorf("the log says %d times that a call is not counted, want once: %s", n, log.String())
		}
	})
}

// meter returns the meter of a key's calls today.
func (b *bench) meter(key, team, upstream, model string) spend.Meter {
	return spend.Meter{
		Day: time.Now().UTC().Format(time.DateOnly), Team: team, Key: key, Upstream: upstream, Model: model,
	}
}

// TestSpendOfATeamThatVanished: what it spent stays, that of a call included that was under way
// when the team and its key left the configuration.
func TestSpendOfATeamThatVanished(t *testing.T) {
	t.Parallel()
	inBubble(t, func(s *setup) { s.config.Prices = priced() }, func(t *testing.T, b *bench) {
		b.call("openai", false, "first")
		conf := b.conf
		conf.Keys = slices.DeleteFunc(slices.Clone(conf.Keys), func(k gateway.Key) bool { return k.Name == "alice" })
		done := make(chan reply)
		go func() { done <- b.do(b.request(b.Context(), "openai", true, "second")) }()
		time.Sleep(10 * time.Millisecond) // it has begun
		if err := b.h.Use(conf); err != nil {
			t.Fatal(err)
		}
		if got := <-done; got.status != http.StatusOK {
			t.Errorf("the call that was under way: got %d %s", got.status, got.body)
		}
		if got := b.do(b.request(b.Context(), "openai", false, "third")); got.status != http.StatusUnauthorized {
			t.Errorf("a call with the key that has gone: got %d", got.status)
		}
		time.Sleep(time.Minute)
		if diff := cmp.Diff(b.reported(), b.spent()); diff != "" || len(b.spent()) != 1 {
			t.Errorf("-client +store:\n%s", diff)
		}
	})
}
