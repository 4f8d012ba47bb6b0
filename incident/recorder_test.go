package incident_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/api"
	"github.com/drawgate/drawgate/incident"
	"github.com/drawgate/drawgate/outbound"
	"github.com/drawgate/drawgate/store/memstore"
)

// Flush waits until the incidents before it were logged and reported, even to a slow receiver.
// After Close it has nothing to wait for.
//
// req: A14
func TestFlush(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var reported atomic.Int64
		rec := incident.New(&incident.Options{Report: func(*api.Incident) {
			time.Sleep(time.Minute)
			reported.Add(1)
		}})
		defer func() { _ = rec.Close() }()
		if err := rec.Flush(t.Context()); err != nil {
			t.Errorf("nothing to wait for: %v", err)
		}
		for i, model := range []string{"a", "b", "c"} {
			e := &outbound.Event{
				ID: uint64(i + 1), Upstream: "openai", Model: model, Outcome: outbound.Refused,
				Granted: time.Now(),
			}
			rec.Observer().Granted(e)
			rec.Observer().Called(e)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 90*time.Second)
		defer cancel()
		if err := rec.Flush(ctx); !errors.Is(err, context.DeadlineExceeded) || reported.Load() != 1 {
			t.Errorf("got %v, %d were reported", err, reported.Load())
		}
		if err := rec.Flush(t.Context()); err != nil || reported.Load() != 3 {
			t.Errorf("got %v, %d were reported", err, reported.Load())
		}
		if err := rec.Close(); err != nil {
			t.Error(err)
		}
		if err := rec.Flush(t.Context()); err != nil {
			t.Errorf("after Close: %v", err)
		}
	})
}

// TestIncident: a refusal of a call that was granted is logged and reported at once, with the time,
// what was left of the limits, the calls under way and the recent ones; the file has all of it.
//
// req: A14
func TestIncident(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		asked := ""
		r := newRig(t, quota(), &incident.Options{
			Instance: "node-1",
			Status: func(_ context.Context, upstream, policy string) (*api.StatusAnswer, error) {
				asked = upstream + " " + policy
				return &api.StatusAnswer{Policy: policy, Key: "project", Open: 7}, nil
			},
		})
		r.call(t.Context(), "one")
		time.Sleep(2 * time.Minute)
		start := time.Now().UTC()
		r.call(t.Context(), "two")
		// the third comes after 3 s, the fourth after 4 s
		r.delay = func(n int) time.Duration { return time.Duration(n) * time.Second }
		r.answers = func(n int) (int, string) {
			if n == 4 {
				return fine()
			}
			return http.StatusTooManyRequests, limited("requests per min (RPM)", 5, 5, "12s")
		}
		var wg sync.WaitGroup
		for _, prompt := range []string{"three", "four"} {
			wg.Go(func() { r.call(t.Context(), prompt) })
			synctest.Wait()
		}
		time.Sleep(3 * time.Second)
		synctest.Wait()

		at := start.Add(3 * time.Second)
		if len(r.reported) != 1 {
			t.Fatalf("%d incidents were reported at once, want 1", len(r.reported))
		}
		call := func(granted time.Time, answered time.Duration, remaining int64, outcome string,
			used api.Costs,
		) api.IncidentTake {
			c := api.IncidentTake{
				Granted: granted, Sent: &granted, Answered: new(granted.Add(answered)), Model: "gpt-4o",
				Estimate: api.Costs{"requests": 1}, Used: used,
				Limit: "gpt-4o/rpm", Remaining: remaining, Outcome: outcome,
			}
			if outcome == api.OutcomeUnderWay {
				c.Sent, c.Answered = nil, nil
			}
			return c
		}
		got := r.reported[0]
		spent := api.Costs{"requests": 1}
		third := call(start, 3*time.Second, 8, "refused", spent)
		want := api.Incident{
			At: at, Last: at, Until: new(at.Add(12 * time.Second)), Instance: "node-1", Severity: api.SeverityError,
			Upstream: "openai", Model: "gpt-4o",
			Meaning: "minute", Count: 1, Status: http.StatusTooManyRequests, Reason: "minute, requests, limit 5",
			Concurrent: 2,
			Summary:    "openai refused a call of gpt-4o for its limit per minute (requests), although our limits had allowed it",
			Diagnosis: []string{
				"the provider says that its limit is 5 requests, and limit gpt-4o/rpm allows 10: set its amount to 5",
				"only 2 of the provider's 5 requests were ours, this call included: somebody else uses the same account",
			},
			Provider: &api.ProviderLimit{Name: "requests per min (RPM)", Unit: "requests", Amount: new(int64(5))},
			Call:     third,
			Takes: []api.IncidentTake{
				call(start.Add(-2*time.Minute), 0, 9, "succeeded", spent), call(start, 0, 9, "succeeded", spent), third,
				call(start, 0, 7, api.OutcomeUnderWay, nil),
			},
		}
		ignore := cmpopts.IgnoreFields(api.Incident{}, "ID", "Limits", "Now", "Minute")
		tokens := cmpopts.IgnoreMapEntries(func(unit string, n int64) bool { return unit == "tokens" && n > 0 })
		if diff := cmp.Diff(want, got, ignore, tokens); diff != "" {
			t.Errorf("(-want +got)\n%s", diff)
		}
		if m := got.Minute; m == nil || m.Calls != 3 || m.Costs["requests"] != 3 || m.AtLeast {
			t.Errorf("the minute before: %+v, want 3 calls", m)
		}
		if l := got.Limits; len(l) != 3 || l[0].Name != "rpm" || l[0].Remaining != 8 || l[0].Amount != 10 ||
			l[2].Remaining != 997 {
			t.Errorf("the limits: %+v", l)
		}
		for _, text := range []string{
			"level=ERROR", got.ID, "although our limits had allowed it", "concurrent=2",
			"set its amount to 5",
		} {
			if !strings.Contains(r.logged(), text) {
				t.Errorf("the log does not have %q: %s", text, r.logged())
			}
		}
		wg.Wait()
		list := r.close()
		if asked != "openai gpt-4o" {
			t.Errorf("the state was asked of %q", asked)
		}
		got.Now = &api.StatusAnswer{Policy: "gpt-4o", Key: "project", Open: 7}
		if diff := cmp.Diff([]api.Incident{got}, list); diff != "" {
			t.Errorf("in the file (-reported +read)\n%s", diff)
		}
		if diff := cmp.Diff(list, r.rec.List()); diff != "" {
			t.Errorf("in memory (-file +list)\n%s", diff)
		}
	})
}

// TestBurstIsOneIncident: all calls that were under way when the provider closed are one incident.
// It is reported once, and its count is right in the file soon, and when the recorder is closed. A
// call that was granted long after is another one.
//
// req: A14
func TestBurstIsOneIncident(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := quota()
		p.Limits[0].Amount = 1000
		r := newRig(t, p, nil)
		r.delay = func(n int) time.Duration { return time.Duration(n) * time.Second }
		r.answer(http.StatusTooManyRequests, limited("requests per min (RPM)", 1000, 1000, "1s"))
		var wg sync.WaitGroup
		for range 200 { // the last one is refused after 200 s, when the quota has long reopened
			wg.Go(func() { r.call(t.Context(), "hello") })
		}
		time.Sleep(100*time.Second + time.Millisecond)
		synctest.Wait()
		if list := r.rec.List(); len(list) != 1 || list[0].Count != 100 || list[0].Concurrent != 200 {
			t.Errorf("after 100 refusals: %d incidents, %+v", len(list), list)
		}
		if list, _, err := incident.Read(r.file); err != nil || len(list) != 1 || list[0].Count < 90 {
			t.Errorf("in the file 10 s after the 90th refusal: %+v, %v", list, err)
		}
		wg.Wait()
		if len(r.reported) != 1 {
			t.Errorf("%d reports, want 1", len(r.reported))
		}
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		if !strings.Contains(r.logged(), "an incident is over") || !strings.Contains(r.logged(), "refused=200") {
			t.Errorf("its end is not in the log: %s", r.logged())
		}
		r.delay = nil
		r.call(t.Context(), "again")
		synctest.Wait()
		list := r.close()
		if len(list) != 2 || list[0].Count != 200 || list[1].Count != 1 || len(r.reported) != 2 ||
			list[0].ID >= list[1].ID {
			t.Errorf("in the file %+v, and %d reports", list, len(r.reported))
		}
		if got, want := list[0].Last.Sub(list[0].At), 199*time.Second; got != want {
			t.Errorf("the last refusal is %v after the first, want %v", got, want)
		}
	})
}

// TestWhatIsAnIncident: a limit on calls is an error, money is a warning, and an overload, a
// failure, a mistake of the caller and a call that is too large are none.
func TestWhatIsAnIncident(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		status                  int
		body                    string
		severity, meaning, says string
	}{
		"minute": {
			429, limited("tokens per min (TPM)", 1_000_000, 999_999, "3s"), api.SeverityError, "minute",
			"although our limits had allowed it",
		},
		"day": {
			429, limited("requests per day (RPD)", 1000, 1000, "3s"), api.SeverityError, "day",
			"limit per day",
		},
		"unsaid": {429, `what?`, api.SeverityError, "minute", "somebody else"},
		"credit": {
			429, `{"error":{"code":"insufficient_quota","message":"You exceeded your current quota."}}`,
			api.SeverityWarning, "credit", "has no credit",
		},
		"no model": {
			429, `{"error":{"message":"Rate limit reached for gpt-4o on requests per min (RPM): Limit 0."}}`,
			api.SeverityWarning, "not_offered", "does not offer it",
		},
		"overload": {503, `{"error":{"message":"overloaded"}}`, "", "", ""},
		"slow":     {429, `{"error":{"code":"slow_down","message":"slow down"}}`, "", "", ""},
		"failure":  {500, `{"error":{"message":"oops"}}`, "", "", ""},
		"mistake":  {400, `{"error":{"message":"bad"}}`, "", "", ""},
		"large": {
			429,
			`{"error":{"message":"Request too large for gpt-4o on tokens per min (TPM): Limit 100, Requested 200."}}`,
			"", "", "",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, quota(), nil)
				r.answer(c.status, c.body)
				r.call(t.Context(), "hello")
				synctest.Wait()
				list := r.rec.List()
				_ = r.rec.Close()
				if c.severity == "" {
					if len(list) != 0 {
						t.Errorf("got %+v", list)
					}
					if _, err := os.Stat(r.file); err == nil {
						t.Error("there is a file")
					}
					return
				}
				if len(list) != 1 || list[0].Severity != c.severity || list[0].Meaning != c.meaning {
					t.Fatalf("got %+v", list)
				}
				if text := list[0].Summary + strings.Join(list[0].Diagnosis, " "); !strings.Contains(text, c.says) {
					t.Errorf("%q does not say %q", text, c.says)
				}
			})
		})
	}
}

// TestSecretsNeverShow: an error that quotes the provider's key and the prompt, wherever it can,
// leaves nothing of them in the incident, the log and the file.
//
// req: A14
func TestSecretsNeverShow(t *testing.T) {
	t.Parallel()
	const key, prompt = "sk-proj-0123456789abcdefSECRET", "my diary of last night"
	for _, body := range []string{
		limited(key+" "+prompt, 5, 5, "3s"),
		limited("requests per "+key, 5, 5, "3s"),
		limited("min per "+prompt, 5, 5, "3s"),
		`{"error":{"message":"Rate limit reached for ` + key + ` on ` + prompt + `: Limit 5","type":"` + key +
			`","code":"` + prompt + `"}}`,
		key + prompt,
	} {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, quota(), nil)
			r.answer(http.StatusTooManyRequests, body)
			r.call(t.Context(), prompt)
			synctest.Wait()
			r.close()
			text, err := os.ReadFile(r.file)
			if err != nil {
				t.Fatal(err)
			}
			listed, err := json.Marshal(r.rec.List())
			if err != nil {
				t.Fatal(err)
			}
			for where, text := range map[string]string{
				"file": string(text), "log": r.logged(),
				"list": string(listed),
			} {
				if len(text) < 100 || strings.Contains(text, "SECRET") || strings.Contains(text, "diary") {
					t.Errorf("%s: the %s has %s", body, where, text)
				}
			}
		})
	}
}

// TestDoToo: a function that is called by outbound.Do says itself what the refusal means.
func TestDoToo(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, quota(), nil)
		until := time.Now().Add(time.Hour).UTC()
		_, err := outbound.Do(t.Context(), r.client, outbound.Call{
			Model: "gpt-4o",
			Costs: []drawgate.Cost{drawgate.Requests(1), drawgate.Tokens(5)},
		},
			func(context.Context) (int, []drawgate.Cost, error) {
				return 0, nil, &outbound.RefusedError{Until: until, Reason: "no\nmore"}
			})
		if !errors.Is(err, outbound.ErrRefused) {
			t.Fatal(err)
		}
		synctest.Wait()
		list := r.close()
		if len(list) != 1 || list[0].Meaning != "unknown" || !list[0].Until.Equal(until) ||
			list[0].Reason != "no?more" || list[0].Provider != nil || list[0].Severity != api.SeverityError {
			t.Errorf("got %+v", list)
		}
	})
}

// TestRestartListsWhatTheFileHas: a new process lists what an earlier one has written.
func TestRestartListsWhatTheFileHas(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, quota(), nil)
		r.answer(http.StatusTooManyRequests, limited("requests per min (RPM)", 5, 5, "3s"))
		r.call(t.Context(), "hello")
		synctest.Wait()
		want := r.close()
		again := incident.New(&incident.Options{File: r.file})
		defer again.Close()
		if diff := cmp.Diff(want, again.List()); diff != "" {
			t.Errorf("(-written +listed)\n%s", diff)
		}
	})
}

// TestUnreadableFileIsReported: a file that may be written, and not read, is told at the start.
func TestUnreadableFileIsReported(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "incidents.jsonl")
	if err := os.Mkdir(path+".1", 0o700); err != nil { // in the place of the older one
		t.Fatal(err)
	}
	var log bytes.Buffer
	rec := incident.New(&incident.Options{File: path, Logger: slog.New(slog.NewTextHandler(&log, nil))})
	if err := rec.Close(); err != nil {
		t.Error(err)
	}
	if n := strings.Count(log.String(), "earlier incidents cannot be listed"); n != 1 {
		t.Errorf("the log says it %d times, want once: %s", n, log.String())
	}
}

// TestUnusableFileIsReported: a file that cannot be written is told at the start and with each
// incident; incidents are still logged, reported and listed, and written once it can be.
//
// req: A14
func TestUnusableFileIsReported(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, quota(), nil)
		if err := os.Mkdir(r.file, 0o700); err != nil {
			t.Fatal(err)
		}
		r.answer(http.StatusTooManyRequests, limited("requests per min (RPM)", 5, 5, "3s"))
		r.call(t.Context(), "hello")
		synctest.Wait()
		if len(r.reported) != 1 || len(r.rec.List()) != 1 || !strings.Contains(r.logged(), "could not be written") {
			t.Errorf("%d reported, %d listed, log: %s", len(r.reported), len(r.rec.List()), r.logged())
		}
		second := incident.New(&incident.Options{File: r.file})
		if err := second.Close(); err != nil { // it has lost nothing
			t.Error(err)
		}
		if err := os.Remove(r.file); err != nil {
			t.Fatal(err)
		}
		time.Sleep(11 * time.Second)
		synctest.Wait()
		if list, _, err := incident.Read(r.file); err != nil || len(list) != 1 {
			t.Errorf("once it can be written, the file has %+v, %v", list, err)
		}
		r.close()
	})
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, quota(), nil)
		if err := os.Mkdir(r.file, 0o700); err != nil {
			t.Fatal(err)
		}
		r.answer(http.StatusTooManyRequests, limited("requests per min (RPM)", 5, 5, "3s"))
		r.call(t.Context(), "hello")
		synctest.Wait()
		if err := r.rec.Close(); err == nil || !strings.Contains(err.Error(), "1 incidents are not in") {
			t.Errorf("Close: %v, want what is missing", err)
		}
	})
}

// TestSlowReportHoldsNobodyUp: callers do not wait for the log, the report or the file. The log
// says how many incidents were not reported.
func TestSlowReportHoldsNobodyUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		var log bytes.Buffer
		reported := 0
		rec := incident.New(&incident.Options{
			Logger: slog.New(slog.NewTextHandler(&log, nil)),
			Report: func(*api.Incident) {
				<-release
				reported++
			},
		})
		obs := rec.Observer()
		const models = api.MaxIncidents + 20
		for i := range models {
			e := &outbound.Event{ID: uint64(i) + 1, Upstream: "u", Model: strings.Repeat("m", i+1), Granted: time.Now()}
			obs.Granted(e)
			e.Outcome = outbound.Refused
			obs.Called(e)
			synctest.Wait() // the first one is being reported
		}
		if n := len(rec.List()); n != api.MaxIncidents {
			t.Errorf("%d are listed, want %d", n, api.MaxIncidents)
		}
		close(release)
		if err := rec.Close(); err != nil {
			t.Error(err)
		}
		if reported != api.MaxIncidents+1 || strings.Count(log.String(), "lost=19") != 1 {
			t.Errorf("%d were reported; the log: %s", reported, log.String())
		}
	})
}

// TestStopWhileTheStoreHangs: incidents are written before the process ends, without the state of
// their quotas, however long the store takes.
//
// req: A14
func TestStopWhileTheStoreHangs(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "incidents.jsonl")
		hangs := func(ctx context.Context, _, _ string) (*api.StatusAnswer, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}
		rec := incident.New(&incident.Options{File: path, Status: hangs})
		store := memstore.New(nil)
		defer store.Close()
		limiter, err := drawgate.New(store, quota(), nil)
		if err != nil {
			t.Fatal(err)
		}
		defer limiter.Close()
		const models = 20
		for i := range models {
			model := strings.Repeat("m", i+1)
			d, err := limiter.Allow(t.Context(), model)
			if err != nil {
				t.Fatal(err)
			}
			e := &outbound.Event{ID: uint64(i) + 1, Upstream: "u", Model: model, Granted: time.Now(), Decision: d}
			rec.Observer().Granted(e)
			e.Outcome = outbound.Refused
			rec.Observer().Called(e)
		}
		synctest.Wait()
		if err := rec.Close(); err != nil {
			t.Error(err)
		}
		if list, _, err := incident.Read(path); err != nil || len(list) != models {
			t.Errorf("the file has %d incidents, %v; want %d", len(list), err, models)
		}
	})
}

// TestLoweredLimitIsLogged: when the provider names a smaller limit in its headers, callers are
// refused earlier than the configuration says. No call was refused by the provider, so there is no
// incident; but the log says why, and what to do.
func TestLoweredLimitIsLogged(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, quota(), nil)
		r.limit = "4"
		for range 3 {
			r.call(t.Context(), "one")
		}
		const text = `openai says that its limit is 4 requests, and limit gpt-4o/rpm has 10: takes obey what it says; set the limit's amount to 4`
		if n := strings.Count(r.logged(), text); n != 1 || strings.Count(r.logged(), "level=WARN") != 1 {
			t.Errorf("the log has the warning %d times: %s", n, r.logged())
		}
		if err := r.rec.Close(); err != nil || len(r.rec.List()) != 0 {
			t.Errorf("%d incidents, want none; %v", len(r.rec.List()), err)
		}
	})
}
