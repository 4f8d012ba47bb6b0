package server_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/drawgate/drawgate/api"
	"github.com/drawgate/drawgate/engine"
	"github.com/drawgate/drawgate/server"
)

// req: D1
func TestRefusalNamesTheLimitThatRefused(t *testing.T) {
	t.Parallel()
	f := plain(t)
	for range 3 {
		if a := f.take(`{"policy":"tiers","key":"u"}`); !a.Allowed || a.Reason != "" || a.RefusedBy != nil ||
			a.RetryAfterMS != 0 {
			t.Fatalf("got %+v", a)
		}
	}
	a := f.take(`{"policy":"tiers","key":"u"}`)
	if a.Allowed || a.Reason != api.ReasonLimited || a.RetryAfterMS < 3_000_000 || a.RetryAfterMS > 3_600_000 ||
		a.Remaining != 0 {
		t.Errorf("got %+v", a)
	}
	if diff := cmp.Diff(&api.LimitName{Policy: "tiers", Limit: "minute"}, a.RefusedBy); diff != "" {
		t.Error(diff)
	}
	if want := `limit "minute" of policy "tiers" (3 requests per rolling 1h) has 0 left; this take fits in `; !strings.Contains(a.Message, want) {
		t.Errorf("message %q does not say %q", a.Message, want)
	}
	if len(a.Limits) != 2 || !a.Limits[0].Refused || a.Limits[1].Refused || a.Limits[1].Remaining != 2 {
		t.Errorf("limits: %+v", a.Limits)
	}
	if a := f.take(`{"policy":"tiers","key":"other"}`); !a.Allowed {
		t.Error("another key was refused")
	}
}

func TestOmittedKeyAndPolicyHaveDefaults(t *testing.T) {
	t.Parallel()
	f := setup{config: engine.Config{Policies: enforced(policies()[:1]...)}}.start(t)
	f.take(`{}`)
	if got := f.used("tiers", api.DefaultKey); got["minute"] != 1 {
		t.Errorf("used %v, want 1", got)
	}
}

func TestSeveralBucketsAreAllOrNothing(t *testing.T) {
	t.Parallel()
	f := plain(t)
	body := `{"buckets":[{"policy":"llm","key":"p","costs":{"tokens":400}},{"policy":"tiers","key":"u","costs":{"requests":2}}]}`
	if a := f.take(body); !a.Allowed || len(a.Limits) != 4 || a.Limits[3].Bucket != 1 {
		t.Fatalf("got %+v", a)
	}
	if a := f.take(body); a.Allowed || a.RefusedBy.Policy != "tiers" {
		t.Errorf("got %+v", a)
	}
	if got := f.used("llm", "p"); got["tpm"] != 400 || got["rpm"] != 1 {
		t.Errorf("a refused take left %v used", got)
	}
}

func TestBatchIsDecidedInOrderEachForItself(t *testing.T) {
	t.Parallel()
	f := plain(t)
	var got api.TakeAnswer
	f.do("POST", "/v1/take", `{"takes":[{"policy":"tiers","costs":{"requests":2}},{"policy":"tiers","costs":{"requests":2}},{"policy":"tiers"},
		{"policy":"tiers","costs":{"tokens":1}}]}`, &got)
	var allowed []bool
	for _, a := range got.Answers {
		allowed = append(allowed, a.Allowed)
	}
	if diff := cmp.Diff([]bool{true, false, true, false}, allowed); diff != "" {
		t.Fatal(diff)
	}
	if e := got.Answers[3].Error; e == nil || e.Code != api.CodeUnknownUnit {
		t.Errorf("error %v, want unknown_unit", e)
	}
}

func TestIDReplaysWhileOpen(t *testing.T) {
	t.Parallel()
	f := plain(t)
	body := `{"policy":"llm","costs":{"tokens":600},"hold_ms":60000,"id":"job-1","grant":"00000000000000A1"}`
	first, again := f.take(body), f.take(body)
	if !again.Allowed || !again.Replayed || first.Replayed || first.Grant != "00000000000000a1" ||
		again.Grant != first.Grant {
		t.Fatalf("first %+v, again %+v", first, again)
	}
	if got := f.used("llm", api.DefaultKey); got["tpm"] != 600 {
		t.Errorf("used %v, want 600", got)
	}
	var p api.Problem
	if got := f.do("POST", "/v1/take", strings.Replace(body, "600", "601", 1), &p); got != 409 ||
		p.Code != api.CodeIDReused {
		t.Errorf("got %d %v", got, &p)
	}
	if id, n, err := server.ParseToken(first.Reservation); id != "job-1" || n != 1 || err != nil {
		t.Errorf("token: %q %d %v", id, n, err)
	}
}

// What no text can say is not a key: two of them would be the same.
func TestKeysAreText(t *testing.T) {
	t.Parallel()
	f := plain(t)
	for _, key := range []string{
		"\xff", "a\xc3", `\ud800`, `\ud800x`, `\udc00`, `\uDBFF\u0041`, `\\\ud800`,
		`\udc00\ud800`, `\ud83d\ude00\ud83d`,
	} {
		var p api.Problem
		if got := f.do("POST", "/v1/take", `{"policy":"llm","key":"`+key+`"}`, &p); got != 400 ||
			p.Code != api.CodeBadJSON || !strings.Contains(p.Detail, "UTF-8") {
			t.Errorf("%q: %d %+v", key, got, p)
		}
	}
	for _, key := range []string{`\ud83d\ude00`, "😀", `\\ud800`, `\u00fc`, `\uFFFD`, `\"\n`} {
		if a := f.take(`{"policy":"llm","key":"` + key + `"}`); !a.Allowed {
			t.Errorf("%q: %+v", key, a)
		}
	}
}
