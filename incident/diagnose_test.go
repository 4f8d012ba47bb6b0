package incident_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/incident"
	"github.com/drawgate/drawgate/llm"
	"github.com/drawgate/drawgate/outbound"
	"github.com/drawgate/drawgate/store/memstore"
)

// TestDiagnosis: the numbers of each cause lead to the sentence that names it, and to no other.
//
// req: A14
func TestDiagnosis(t *testing.T) {
	t.Parallel()
	day := `{"error":{"message":"Rate limit reached for gpt-4o on requests per day (RPD): Limit 5, Used 5, Requested 1."}}`
	for name, c := range map[string]struct {
		change func(p *drawgate.Policy)
		calls  int // before the one that is refused
		body   string
		want   []string
	}{
		"our limit is too high": {nil, 6, limited("requests per min (RPM)", 5, 5, "3s"), []string{
			"the provider says that its limit is 5 requests, and limit gpt-4o/rpm allows 10: set its amount to 5",
		}},
		"somebody else": {nil, 2, limited("requests per min (RPM)", 10, 10, "3s"), []string{
			"only 3 of the provider's 10 requests were ours, this call included: somebody else uses the same account",
		}},
		"headroom counts": {
			func(p *drawgate.Policy) { p.Limits[0].Headroom = drawgate.Percent(20) }, 7,
			limited("requests per min (RPM)", 8, 8, "3s"),
			[]string{
				"only 8 of the provider's 8 requests were ours, this call included: somebody else uses the same account",
			},
		},
		"the counts differ": {nil, 9, `{"error":{"message":"Requests are too fast.","type":"requests"}}`, []string{
			"limit gpt-4o/rpm had 0 of 10 requests left after this call, so the two counts differ by little: give it a larger margin, or headroom",
		}},
		"it does not say what": {nil, 1, `too many`, []string{
			"limit gpt-4o/rpm had 8 of 10 requests left after this call: somebody else uses the same account, or the limit is set too high",
		}},
		"a limit per day": {nil, 6, day, []string{
			"the provider says that its limit is 5 requests, and limit gpt-4o/rpd allows 1000: set its amount to 5",
		}},
		"a limit that we do not have": {func(p *drawgate.Policy) { p.Limits = p.Limits[:1] }, 0, day, []string{
			"the provider has a limit of requests per day, and the policy has none: add one",
		}},
		"another unit": {
			func(p *drawgate.Policy) { p.Limits = p.Limits[:1] }, 0,
			limited("tokens per min (TPM)", 100, 99, "3s"),
			[]string{
				"the provider has a limit of tokens per minute, and the policy has none: add one",
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				p := quota()
				if c.change != nil {
					c.change(&p)
				}
				r := newRig(t, p, nil)
				for range c.calls {
					r.call(t.Context(), "hello")
				}
				r.answer(http.StatusTooManyRequests, c.body)
				r.call(t.Context(), "hello")
				list := r.close()
				if len(list) != 1 || strings.Join(list[0].Diagnosis, "\n") != strings.Join(c.want, "\n") {
					t.Errorf("got %+v, want %q", list, c.want)
				}
			})
		})
	}
}

// TestDiagnosisOfAnOutage: a call that a fallback granted, and a pause that could not be stored,
// are named.
func TestDiagnosisOfAnOutage(t *testing.T) {
	t.Parallel()
	rec := incident.New(nil)
	defer rec.Close()
	e := &outbound.Event{
		ID: 1, Upstream: "u", Model: "m", Granted: time.Now(), Outcome: outbound.Refused,
		Err: drawgate.ErrStoreUnavailable,
	}
	e.Decision.Fallback = true
	rec.Observer().Granted(e)
	rec.Observer().Called(e)
	in := rec.List()[0]
	if text := strings.Join(in.Diagnosis, "\n"); !in.Fallback || !in.NotPaused ||
		!strings.Contains(text, "the fallback granted the call") || !strings.Contains(text, "could not be stored") {
		t.Errorf("got %+v", in)
	}
}

// TestAnythingCanBeRefused: whatever a provider says about whatever call, there is an incident of
// it with a sentence, and nothing panics on the caller's path.
func TestAnythingCanBeRefused(t *testing.T) {
	t.Parallel()
	store := memstore.New(nil)
	t.Cleanup(func() { store.Close() })
	policies := 0
	rapid.Check(t, func(t *rapid.T) {
		policies++
		units := []string{"", llm.UnitTokens, llm.UnitInputTokens, "usd_micros"}
		p := drawgate.Policy{Name: fmt.Sprint("p", policies)}
		for i := range rapid.IntRange(1, 4).Draw(t, "limits") {
			amount := rapid.Int64Range(1, 100).Draw(t, "amount")
			l := rapid.SampledFrom([]drawgate.Limit{
				drawgate.RollingLimit("x", amount, time.Minute), drawgate.RollingLimit("x", amount, 24*time.Hour),
				drawgate.CalendarLimit("x", amount, drawgate.Day, "UTC"),
				drawgate.BucketLimit("x", amount, time.Minute, amount),
			}).Draw(t, "limit").Of(rapid.SampledFrom(units).Draw(t, "unit"))
			l.Name = fmt.Sprint("l", i)
			p.Limits = append(p.Limits, l)
		}
		lim, err := drawgate.New(store, p, nil)
		if err != nil {
			t.Fatal(err)
		}
		defer lim.Close()
		now := time.Now()
		e := &outbound.Event{
			ID: 1, Upstream: "u", Model: "m", Granted: now, Outcome: outbound.Refused,
			Until: now.Add(time.Minute), Refusal: llm.Refusal{
				Meaning: llm.Meaning(rapid.IntRange(0, 8).Draw(t, "meaning")),
				Unit:    rapid.SampledFrom(units).Draw(t, "their unit"),
				Limit:   rapid.Int64Range(-1, 100).Draw(t, "their limit"), QuotaID: rapid.String().Draw(t, "quota"),
			},
		}
		if rapid.Bool().Draw(t, "decided") {
			ask := drawgate.Ask{Limiter: lim, Key: "k", Costs: []drawgate.Cost{{Unit: p.Limits[0].Unit}}}
			if e.Decision, _, err = lim.Take(t.Context(), drawgate.Request{Buckets: []drawgate.Ask{ask}}); err != nil {
				t.Fatal(err)
			}
		}
		if rapid.Bool().Draw(t, "sent") {
			e.Sent = now.Add(time.Second)
		}
		rec := incident.New(nil)
		defer rec.Close()
		if rapid.Bool().Draw(t, "granted") { // otherwise the recorder came later
			rec.Observer().Granted(e)
		}
		rec.Observer().Called(e)
		if list := rec.List(); len(list) != 1 || list[0].Summary == "" || list[0].ID == "" || list[0].Concurrent < 1 {
			t.Fatalf("got %+v", list)
		}
	})
}
