package server_test

import (
	"bufio"
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/drawgate/drawgate/api"
	"github.com/drawgate/drawgate/engine"
	"github.com/drawgate/drawgate/server"
)

// askLines sends a take that accepts lines, and returns the media type and the lines of the answer
// when that begins.
func (f fixture) askLines(body string) (media string, lines *bufio.Scanner) {
	f.t.Helper()
	req, err := http.NewRequestWithContext(f.t.Context(), http.MethodPost, f.url+"/v1/take", strings.NewReader(body))
	if err != nil {
		f.t.Fatal(err)
	}
	req.Header.Set("Accept", "application/x-ndjson, application/json;q=0.5")
	res, err := (&http.Client{Transport: f.web}).Do(req)
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(func() { _ = res.Body.Close() })
	return res.Header.Get("Content-Type"), bufio.NewScanner(res.Body)
}

// oneLine decodes the next line.
func oneLine(t *testing.T, in *bufio.Scanner, v any) {
	t.Helper()
	if !in.Scan() {
		t.Fatalf("there is no further line: %v", in.Err())
	}
	if err := json.Unmarshal(in.Bytes(), v); err != nil {
		t.Fatalf("%v in %s", err, in.Bytes())
	}
}

// A take hears at once what it waits for, before its answer is there.
//
// req: U13
func TestProgressArrivesWhileTheTakeWaits(t *testing.T) {
	t.Parallel()
	f := plain(t)
	held := f.take(`{"policy":"slots","hold_ms":600000}`)
	media, in := f.askLines(`{"policy":"slots","hold_ms":1000,"wait_ms":60000}`)
	if media != api.ProgressType {
		t.Fatalf("the answer is %s", media)
	}
	var line api.ProgressLine
	oneLine(t, in, &line)
	if p := line.Progress; p == nil || p.Place != 1 || p.Reason != api.ReasonHeld || p.Policy != "slots" ||
		p.Limit != "slots" {
		t.Fatalf("got %+v", line.Progress)
	}
	f.settle(`{"reservation":"` + held.Reservation + `"}`)
	var a api.Answer
	for line.Progress = new(api.Progress); line.Progress != nil; { // a slow machine may send another one
		line.Progress = nil
		oneLine(t, in, &line)
		if err := json.Unmarshal(in.Bytes(), &a); err != nil {
			t.Fatal(err)
		}
	}
	if !a.Allowed || a.Reservation == "" || in.Scan() {
		t.Errorf("got %+v, and then %s", a, in.Bytes())
	}
}

// A take that need not wait is answered with one line, and one that fails before it waits with a
// problem.
func TestProgressOfATakeThatDoesNotWait(t *testing.T) {
	t.Parallel()
	f := plain(t)
	_, in := f.askLines(`{"policy":"tiers","wait_ms":600000}`)
	var a api.Answer
	if oneLine(t, in, &a); !a.Allowed || in.Scan() {
		t.Errorf("got %+v, and then %s", a, in.Bytes())
	}
	for body, want := range map[string]string{
		`{"policy":"nope","wait_ms":1000}`: api.ProblemType, `{"policy":"tiers"}`: "application/json",
		`{"takes":[{"policy":"tiers","wait_ms":1000}]}`: "application/json",
	} {
		if got, _ := f.askLines(body); got != want {
			t.Errorf("%s is answered with %s, want %s", body, got, want)
		}
	}
}

// Lines are for those who accept them: a quality of 0 says the opposite.
func TestProgressIsAccepted(t *testing.T) {
	t.Parallel()
	f := plain(t)
	for accept, want := range map[string]string{
		"application/x-ndjson":                               api.ProgressType,
		"application/json, Application/X-NDJSON ; q=0.001":   api.ProgressType,
		"application/x-ndjson;q=none":                        api.ProgressType,
		"application/x-ndjson;q=0":                           "application/json",
		"application/x-ndjson;v=1; Q=0.000":                  "application/json",
		"application/x-ndjson;q=0, application/json, */*":    "application/json",
		"application/x-ndjson;q=0, application/x-ndjson;q=1": api.ProgressType,
		"*/*": "application/json",
	} {
		if got := ask(f.srv, "POST", "/v1/take", `{"policy":"tiers","key":"`+strings.ReplaceAll(accept, `"`,
			"")+`","wait_ms":600000}`, "Accept: "+accept).Header().Get("Content-Type"); got != want {
			t.Errorf("%s is answered with %s, want %s", accept, got, want)
		}
	}
}

// A take that fails while it waits has the problem in its last line.
func TestProgressEndsWithAProblem(t *testing.T) {
	t.Parallel()
	s := setup{}.make(t)
	f, stop := serve(t, s)
	f.take(`{"policy":"slots","hold_ms":600000}`)
	_, in := f.askLines(`{"policy":"slots","hold_ms":1000,"wait_ms":600000}`)
	var line api.ProgressLine
	oneLine(t, in, &line)
	if err := stop(); err != nil {
		t.Error(err)
	}
	var a api.Answer
	for a.Error == nil && in.Scan() {
		if err := json.Unmarshal(in.Bytes(), &a); err != nil {
			t.Fatal(err)
		}
	}
	if a.Error == nil || a.Error.Code != api.CodeClosing {
		t.Errorf("got %s", in.Bytes())
	}
}

// /v1/waiting and a status say who waits, each tenant's token for its own.
//
// req: U13
func TestWaitingLines(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := setup{config: engine.Config{Policies: enforced(policies()...)}}.inBubble(t)
		f.take(`{"policy":"slots","hold_ms":600000}`)
		f.take(`{"policy":"slots","tenant":"acme","key":"k","hold_ms":600000}`)
		for range 2 {
			go ask(f.srv, "POST", "/v1/take", `{"policy":"slots","hold_ms":1000,"wait_ms":60000}`)
			synctest.Wait()
			time.Sleep(100 * time.Millisecond)
		}
		go ask(f.srv, "POST", "/v1/take", `{"policy":"slots","tenant":"acme","key":"k","hold_ms":1000,"wait_ms":60000}`)
		synctest.Wait()
		all := []api.WaitingLine{
			{
				Policy: "slots", Key: "default", Waiting: 2, LongestMS: 200, NextMS: 50, Reason: api.ReasonHeld,
				Limit: "slots",
			},
			{
				Policy: "slots", Tenant: "acme", Key: "k", Waiting: 1, NextMS: 250, Reason: api.ReasonHeld,
				Limit: "slots",
			},
		}
		for path, want := range map[string][]api.WaitingLine{
			"/v1/waiting": all, "/v1/waiting?policy=slots": all, "/v1/waiting?policy=tiers": {},
			"/v1/waiting?tenant=acme": all[1:], "/v1/waiting?tenant=none": {},
		} {
			var got api.WaitingAnswer
			if code := f.do("GET", path, "", &got); code != http.StatusOK {
				t.Errorf("%s: %d", path, code)
			}
			wantSame(t, path, got.Lines, want)
		}
		var slots, tiers api.StatusAnswer
		if f.do("GET", "/v1/status?policy=slots", "", &slots); slots.Waiting != 2 || slots.NextTryMS != 50 {
			t.Errorf("%d wait, the next try is in %d ms", slots.Waiting, slots.NextTryMS)
		}
		if f.do("GET", "/v1/status?policy=tiers", "", &tiers); tiers.Waiting != 0 {
			t.Errorf("%d wait", tiers.Waiting)
		}
		time.Sleep(time.Hour) // they give up
	})
}

// A token that is bound to a tenant sees only that tenant's lines.
func TestWaitingLinesOfATenant(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := setup{options: &server.Options{Tokens: tokens()}}.make(t)
		take := func(body string) { ask(s, "POST", "/v1/take", body, bearer(admin)) }
		for _, tenant := range []string{"acme", "other"} {
			take(`{"policy":"slots","tenant":"` + tenant + `","hold_ms":600000}`)
			go take(`{"policy":"slots","tenant":"` + tenant + `","hold_ms":1000,"wait_ms":60000}`)
		}
		synctest.Wait()
		for token, want := range map[string]string{bound: "acme", admin: "acme other"} {
			w := ask(s.AdminHandler(), "GET", "/v1/waiting", "", bearer(token))
			var a api.WaitingAnswer
			if err := json.Unmarshal(w.Body.Bytes(), &a); err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, l := range a.Lines {
				got = append(got, l.Tenant)
			}
			slices.Sort(got)
			if strings.Join(got, " ") != want {
				t.Errorf("got %q, want %q", got, want)
			}
		}
		if w := ask(s.AdminHandler(), "GET", "/v1/waiting?tenant=other", "",
			bearer(bound)); w.Code != http.StatusForbidden {
			t.Errorf("another tenant's lines: %d", w.Code)
		}
		time.Sleep(time.Hour) // they give up
	})
}

func wantSame[T comparable](t *testing.T, what string, got, want []T) {
	t.Helper()
	if len(got) != len(want) {
		t.Errorf("%s: got %+v, want %+v", what, got, want)
		return
	}
	for i := range want {
		if got[i] != want[i] {
			t.Errorf("%s: got %+v, want %+v", what, got[i], want[i])
		}
	}
}
