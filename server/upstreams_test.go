package server_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/api"
	"github.com/drawgate/drawgate/engine"
	"github.com/drawgate/drawgate/server"
)

// upstreams are those of a gateway with a policy that counts tokens only, one that counts both, and
// one that does not exist.
func upstreams() []api.Upstream {
	return []api.Upstream{
		{
			Name: "gemini", Provider: "gemini", Owner: "project",
			Calls: &api.Calls{Circuit: api.CircuitOpen, RetryAfterMS: 1500, UnderWay: 2, Waiting: 3},
			Quotas: []api.Quota{
				{Policy: "llm", Models: []string{"gemini-2.5-flash", "gemini-2.0*"}},
				{Policy: "tpm", Models: []string{"*"}},
			},
		},
		{
			Name: "openai", Provider: "openai", Owner: "openai", Calls: &api.Calls{Circuit: api.CircuitClosed},
			Quotas: []api.Quota{{Policy: "gone", Models: []string{"*"}}},
		},
	}
}

// tokensOnly is a policy that counts no requests.
var tokensOnly = drawgate.Policy{Name: "tpm", Limits: []drawgate.Limit{drawgate.RollingLimit("tpm", 1000,
	time.Hour).Of("tokens")}}

// Each upstream shows its circuit, and of each quota what is used of every limit, until when it is
// paused and why. Nothing is spent.
//
// req: C9
func TestUpstreamsShowCircuitsAndQuotas(t *testing.T) {
	t.Parallel()
	f := setup{
		config:  engine.Config{Policies: enforced(append(policies(), tokensOnly)...)},
		options: &server.Options{Upstreams: upstreams},
	}.start(t)
	f.take(`{"policy":"llm","key":"project","costs":{"requests":2,"tokens":70}}`)
	var paused api.PauseAnswer
	f.do("POST", "/v1/pause", `{"policy":"tpm","key":"project","for_ms":60000,"reason":"day"}`, &paused)
	for range 2 {
		var got api.UpstreamsAnswer
		if code := f.do("GET", "/v1/upstreams", "", &got); code != 200 || len(got.Upstreams) != 2 {
			t.Fatalf("%d %+v", code, got)
		}
		gemini, openai := got.Upstreams[0], got.Upstreams[1]
		if c := gemini.Calls; c.Circuit != api.CircuitOpen || c.RetryAfterMS != 1500 || c.UnderWay != 2 ||
			c.Waiting != 3 || gemini.Owner != "project" {
			t.Errorf("got %+v, %+v", gemini, c)
		}
		llm := gemini.Quotas[0].Status
		rpm, tpm := llm.Limits[0], llm.Limits[1]
		if llm.Key != "project" || rpm.Name != "rpm" || rpm.Used != 2 || rpm.Remaining != 8 || rpm.Amount != 10 ||
			rpm.WindowMS != 3_600_000 ||
			tpm.Name != "tpm" || tpm.Unit != "tokens" || tpm.Used != 70 || tpm.ResetAt.Before(llm.At) ||
			llm.Paused != nil {
			t.Errorf("got %+v", llm)
		}
		tokens := gemini.Quotas[1].Status
		if tokens == nil || tokens.Limits[0].Used != 0 || tokens.Paused == nil ||
			!tokens.Paused.Until.Equal(paused.Until) || tokens.Paused.Reason != "day" {
			t.Errorf("got %+v, want a pause until %v", tokens, paused.Until)
		}
		if gone := openai.Quotas[0]; gone.Status != nil || gone.Error == nil ||
			gone.Error.Code != api.CodeUnknownPolicy {
			t.Errorf("a policy that does not exist: %+v", gone)
		}
	}
	var one api.UpstreamsAnswer
	if f.do("GET", "/v1/upstreams?name=openai", "", &one); len(one.Upstreams) != 1 ||
		one.Upstreams[0].Name != "openai" {
		t.Errorf("by name: %+v", one)
	}
}

// While the store does not answer, the circuits are shown, and an error in place of what is used.
//
// req: C9
func TestUpstreamsWithoutTheStore(t *testing.T) {
	t.Parallel()
	f := setup{
		store: downStore{}, config: engine.Config{Policies: enforced(append(policies(), tokensOnly)...)},
		options: &server.Options{Upstreams: upstreams},
	}.start(t)
	var got api.UpstreamsAnswer
	if code := f.do("GET", "/v1/upstreams", "", &got); code != 200 {
		t.Fatalf("got %d", code)
	}
	u := got.Upstreams[0]
	if u.Calls.Circuit != api.CircuitOpen || u.Quotas[0].Status != nil || u.Quotas[0].Error == nil ||
		u.Quotas[0].Error.Code != api.CodeStoreUnavailable {
		t.Errorf("got %+v", u)
	}
}

// A server without a gateway has no upstreams, and an answer reads a bounded number of buckets.
func TestUpstreamsAreBounded(t *testing.T) {
	t.Parallel()
	var none api.UpstreamsAnswer
	if code := plain(t).do("GET", "/v1/upstreams", "", &none); code != 200 || none.Upstreams == nil ||
		len(none.Upstreams) != 0 {
		t.Errorf("without a gateway: %d %+v", code, none)
	}
	many := func() (list []api.Upstream) {
		for i := range 101 {
			u := api.Upstream{Name: fmt.Sprint("u", i), Owner: "o"}
			for range 10 {
				u.Quotas = append(u.Quotas, api.Quota{Policy: "llm"})
			}
			list = append(list, u)
		}
		return list
	}
	f := setup{options: &server.Options{Upstreams: many}}.start(t)
	var got api.UpstreamsAnswer
	f.do("GET", "/v1/upstreams", "", &got)
	if q := got.Upstreams[99].Quotas[9]; q.Status == nil {
		t.Errorf("the last quota that is read: %+v", q)
	}
	if q := got.Upstreams[100].Quotas[0]; q.Error == nil || !strings.Contains(q.Error.Detail,
		"one upstream at a time") {
		t.Errorf("the first one that is not: %+v", q)
	}
}
