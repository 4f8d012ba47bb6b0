package httplimit_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/httplimit"
)

// unix returns an instant in Unix seconds, as in X-RateLimit-Reset. d is whole seconds from now,
// and the result is rounded up.
func unix(d time.Duration) string {
	return strconv.FormatInt(time.Now().Add(d+time.Second-time.Microsecond).Unix(), 10)
}

// The headers describe each kind of limit as docs/httplimit.md says. req: B4.
func TestKinds(t *testing.T) {
	t.Parallel()
	day := drawgate.Limit{
		Name: "rpd", Kind: drawgate.Calendar, Every: drawgate.Day, Amount: 250,
		Headroom: drawgate.Share{Percent: 20},
	}
	for _, c := range []struct {
		name                     string
		limit                    drawgate.Limit
		max, left, items, limit2 string
		reset                    time.Duration // 0: none
	}{
		{
			"bucket", bucket(10, time.Minute, 5), "10", "4", `"p";r=4;t=6`, `"p";q=10;w=60;drawgate-burst=5`,
			6 * time.Second,
		},
		{
			"bucket with burst = amount", bucket(10, time.Minute, 0), "10", "9", `"p";r=9;t=6`, `"p";q=10;w=60`,
			6 * time.Second,
		},
		{
			"bucket with headroom",
			drawgate.Limit{
				Name: "x", Kind: drawgate.Bucket, Amount: 100, Window: time.Minute, Burst: 20,
				Headroom: drawgate.Share{Percent: 50},
			},
			"50", "9", `"p";r=9;t=2`, `"p";q=50;w=60;drawgate-burst=10`, 1200 * time.Millisecond,
		},
		{
			"bucket used up: the next unit, not the last", bucket(10, time.Minute, 1), "10", "0", `"p";r=0;t=6`,
			`"p";q=10;w=60;drawgate-burst=1`, 6 * time.Second,
		},
		{"rolling", rolling(10, time.Minute), "10", "9", `"p";r=9;t=60`, `"p";q=10;w=60`, time.Minute},
		{
			"rolling, rounded up", rolling(10, 1500*time.Millisecond), "10", "9", `"p";r=9;t=2`, `"p";q=10;w=2`,
			1500 * time.Millisecond,
		},
		{
			"rolling, less than a second", rolling(10, 100*time.Millisecond), "10", "9", `"p";r=9;t=1`, `"p";q=10;w=1`,
			100 * time.Millisecond,
		},
		{"calendar, with headroom", day, "200", "199", `"p";r=199;t=86400`, `"p";q=200;w=86400`, 24 * time.Hour},
		{
			"calendar month",
			drawgate.Limit{Name: "m", Kind: drawgate.Calendar, Every: drawgate.Month, Amount: 5},
			"5", "4", `"p";r=4;t=2678400`, `"p";q=5;w=2678400`, 31 * 24 * time.Hour,
		},
		{
			"total, which never comes back",
			drawgate.Limit{Name: "credit", Kind: drawgate.Calendar, Every: drawgate.Total, Amount: 5},
			"5", "4", `"p";r=4`, `"p";q=5`, 0,
		},
		{"concurrency", slots(3), "3", "2", `"p";r=2`, `"p";q=3;qu="concurrent-requests"`, 0},
	} {
		synctest.Test(t, func(t *testing.T) { // it begins at midnight, on the first of a month
			h, p := ask(one(t, nil, policy("p", c.limit)))
			defer p.End()
			reset := ""
			if c.reset > 0 {
				reset = unix(c.reset)
			}
			t.Log(c.name)
			wantHeaders(t, h, "X-RateLimit-Limit", c.max, "X-RateLimit-Remaining", c.left, "X-RateLimit-Reset", reset,
				"RateLimit", c.items, "RateLimit-Policy", c.limit2, "Retry-After", "")
			parseList(t, h, "RateLimit")
			parseList(t, h, "RateLimit-Policy")
		})
	}
}

// costing returns a middleware over one policy, for requests that cost this.
func costing(t *testing.T, p drawgate.Policy, costs ...drawgate.Cost) *httplimit.Middleware {
	t.Helper()
	return middleware(t, nil, httplimit.Bucket{
		Limiter: limiter(t, p), Key: httplimit.Fixed("all"),
		Costs: func(*http.Request) []drawgate.Cost { return costs },
	})
}

func TestSeveralLimits(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		tokens := drawgate.Limit{Name: "tpm", Unit: "tokens", Kind: drawgate.Rolling, Amount: 1000, Window: time.Minute}
		requests := rolling(10, time.Hour)
		requests.Name = "rph"
		m := costing(t, policy("llm", requests, tokens, slots(2)), drawgate.Cost{Unit: "tokens", N: 400})
		h, p := ask(m)
		p.End()
		const limits = `"llm/rph";q=10;w=3600, "llm/tpm";q=1000;qu="tokens";w=60, "llm/slots";q=2;qu="concurrent-requests"`
		wantHeaders(t, h, "RateLimit", `"llm/rph";r=9;t=3600, "llm/tpm";r=600;t=60, "llm/slots";r=1`,
			"RateLimit-Policy", limits,
			// the tightest; slots come last
			"X-RateLimit-Limit", "1000", "X-RateLimit-Remaining", "600", "X-RateLimit-Reset", unix(time.Minute))
		time.Sleep(10 * time.Second)
		_, p = ask(m)
		p.End()
		h, p = ask(m) // of 1000 tokens 800 are used: 50 s until the first 400 are free
		wantHeaders(t, h, "RateLimit", `"llm/rph";r=8;t=50, "llm/tpm";r=200;t=50, "llm/slots";r=2`, "RateLimit-Policy",
			limits, "Retry-After", "50",
			"X-RateLimit-Limit", "1000", "X-RateLimit-Remaining", "200", "X-RateLimit-Reset", unix(time.Minute))
		if got, want := fmt.Sprintln(p.Problem.Violated, p.Problem.Detail),
			`[llm/tpm] Your limit has been reached: 1000 tokens per minute. Try again in 50 s.`+"\n"; got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	})
}

// TestRetryAfterIsNotBeforeTheWindowEnds: "If a response contains both, the Retry-After field value
// SHOULD NOT reference a point in time earlier than the end of the effective window" (draft -11,
// section 6).
func TestRetryAfterIsNotBeforeTheWindowEnds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		minute, hour := rolling(3, time.Minute), rolling(100, time.Hour)
		minute.Name, hour.Name = "rpm", "rph"
		m := one(t, nil, policy("p", minute, hour, bucket(60, time.Minute, 2)))
		refused := 0
		for range 200 {
			h, _ := ask(m)
			time.Sleep(317 * time.Millisecond)
			after, err := strconv.ParseInt(h.Get("Retry-After"), 10, 64)
			if err != nil {
				continue
			}
			refused++
			for _, it := range parseList(t, h, "RateLimit") {
				if w := it.params["t"].(int64); w > after {
					t.Fatalf("Retry-After %d, but %q", after, h.Get("RateLimit"))
				}
			}
		}
		if refused < 100 {
			t.Errorf("%d refusals: too few to show anything", refused)
		}
	})
}

// Retry-After is the smallest true number of seconds: not the whole window, not a date, never
// missing. One second earlier the request is still refused, and then it passes.
func TestPeers14RetryAfterIsTheSmallestTrueNumberOfSeconds(t *testing.T) {
	t.Parallel()
	for name, l := range map[string]drawgate.Limit{
		"bucket": bucket(7, time.Minute, 3), "fast bucket": bucket(100, time.Second, 1),
		"rolling": rolling(4, 17300*time.Millisecond), "rolling by the entry": rolling(1, time.Hour),
		"calendar": {Name: "c", Kind: drawgate.Calendar, Every: drawgate.Minute, Amount: 2},
	} {
		synctest.Test(t, func(t *testing.T) {
			store := limiter(t, policy("p", l))
			m := middleware(t, nil, httplimit.Bucket{Limiter: store, Key: httplimit.Fixed("all")})
			for i := 0; i < 30; {
				h, p := ask(m)
				if p.Problem == nil {
					time.Sleep(time.Millisecond)
					continue
				}
				i++
				after, err := strconv.Atoi(h.Get("Retry-After"))
				if err != nil || after < 1 || int64(after) != p.Problem.After {
					t.Fatalf("%s: Retry-After %q, problem %+v", name, h.Get("Retry-After"), p.Problem)
				}
				if after > 1 {
					time.Sleep(time.Duration(after-1) * time.Second)
					if st, err := store.Status(t.Context(), "all"); err != nil || st.Allowed {
						t.Fatalf("%s: it passes a second before Retry-After %d is over (%v)", name, after, err)
					}
					after = 1
				}
				time.Sleep(time.Duration(after) * time.Second)
				if _, p := ask(m); p.Problem != nil {
					t.Fatalf("%s: refused after Retry-After: %+v", name, p.Problem)
				}
			}
		})
	}
}

// The fields can be parsed whatever the name of a policy is.
func TestNamesAreStrings(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{
		`per "ip"`: `"per \"ip\"";r=9;t=60`, `a\b`: `"a\\b";r=9;t=60`, "Zürich": `"Z%C3%BCrich";r=9;t=60`,
		"100%":     `"100%25";r=9;t=60`,
		"a;r=0, b": `"a;r=0, b";r=9;t=60`,
	} {
		h, _ := ask(one(t, nil, policy(name, rolling(10, time.Minute))))
		wantHeaders(t, h, "RateLimit", want)
		parseList(t, h, "RateLimit")
		parseList(t, h, "RateLimit-Policy")
	}
}

func TestFields(t *testing.T) {
	t.Parallel()
	for fields, want := range map[httplimit.Fields][2]string{
		0: {"10", `"p";q=10;w=60`}, httplimit.AllFields: {"10", `"p";q=10;w=60`}, httplimit.XRateLimit: {"10", ""},
		httplimit.RateLimit: {"", `"p";q=10;w=60`},
		httplimit.NoFields:  {"", ""},
	} {
		m := one(t, &httplimit.Options{Fields: fields}, policy("p", rolling(10, time.Minute)))
		h, _ := ask(m)
		wantHeaders(t, h, "X-RateLimit-Limit", want[0], "RateLimit-Policy", want[1])
		for range 10 {
			h, _ = ask(m)
		}
		if h.Get("Retry-After") == "" {
			t.Errorf("fields %d: no Retry-After", fields)
		}
	}
}

// Describe chooses the policy that the headers describe. req: B4.
func TestDescribe(t *testing.T) {
	t.Parallel()
	perIP := limiter(t, policy("per-ip", rolling(10, time.Minute)))
	buckets := []httplimit.Bucket{
		{Limiter: perIP},
		{Limiter: with(t, perIP, policy("per-user", rolling(2, time.Minute))), Key: httplimit.Fixed("me")},
		{Limiter: with(t, perIP, policy("api", rolling(100, time.Minute))), Key: httplimit.Fixed("all"), Shared: true},
	}
	for describe, want := range map[string][2]string{
		"":       {"2", `"per-ip";q=10;w=60, "per-user";q=2;w=60`}, // not what all callers share
		"per-ip": {"10", `"per-ip";q=10;w=60`}, "api": {"100", `"api";q=100;w=60`},
	} {
		h, _ := ask(middleware(t, &httplimit.Options{Describe: describe}, buckets...))
		wantHeaders(t, h, "X-RateLimit-Limit", want[0], "RateLimit-Policy", want[1])
	}
	h, _ := ask(middleware(t, nil, buckets[2])) // there is nothing else
	wantHeaders(t, h, "X-RateLimit-Limit", "100")
}

// A middleware may stand in front of a route's own middleware.
func TestNested(t *testing.T) {
	t.Parallel()
	outer, inner := one(t, nil, policy("site", rolling(100, time.Minute))),
		one(t, nil, policy("search", rolling(1, time.Minute)))
	h := outer.Handler(inner.Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})))
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", http.NoBody))
	wantHeaders(t, w.Header(), "RateLimit-Policy", `"site";q=100;w=60 + "search";q=1;w=60`, "RateLimit",
		`"site";r=99;t=60 + "search";r=0;t=60`, "X-RateLimit-Limit", "1")
	if items := parseList(t, w.Header(), "RateLimit"); len(items) != 2 {
		t.Errorf("items %v", items)
	}
}

// If others wait for a bucket that the headers do not describe, the headers do not invent what is
// left in the other buckets.
func TestQueuedElsewhere(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		perIP := limiter(t, policy("per-ip", rolling(10, time.Minute)))
		api := with(t, perIP, policy("api", rolling(1, time.Minute)))
		m := middleware(t, nil, httplimit.Bucket{Limiter: perIP},
			httplimit.Bucket{Limiter: api, Key: httplimit.Fixed("all"), Shared: true})
		if _, p := ask(m); p.Problem != nil {
			t.Fatalf("the first request: got %+v, want it to pass", p.Problem)
		}
		go func() { _, _ = api.Wait(context.Background(), "all") }()
		synctest.Wait()
		h, p := ask(m)
		if p.Problem == nil || p.Problem.Code != httplimit.CodeQueued || p.Problem.Scope != httplimit.ScopeAPI {
			t.Fatalf("problem %+v", p.Problem)
		}
		wantHeaders(t, h, "X-RateLimit-Limit", "", "RateLimit", "")
		if after, err := strconv.Atoi(h.Get("Retry-After")); err != nil || after < 59 || after > 62 {
			t.Errorf("Retry-After %q, want about a minute", h.Get("Retry-After"))
		}
	})
}

// Programs that keep replacing their policies do not fill the memory, and no limit is described as
// another.
func TestManyLimits(t *testing.T) {
	t.Parallel()
	base := limiter(t, policy("p", rolling(1, time.Minute)))
	hs := httplimit.NewHeaders(nil)
	for i := range 5000 {
		d, err := with(t, base, policy("p", rolling(int64(i+2), time.Minute))).Allow(t.Context(), strconv.Itoa(i))
		if err != nil {
			t.Fatal(err)
		}
		for range 2 {
			h := http.Header{}
			if hs.Append(h, &d); h.Get("X-RateLimit-Limit") != strconv.Itoa(i+2) {
				t.Fatalf("limit %s, want %d", h.Get("X-RateLimit-Limit"), i+2)
			}
		}
	}
	h := http.Header{}
	if hs.Append(h, &drawgate.Decision{Allowed: true}); len(h) != 0 {
		t.Errorf("an empty decision says %v", h)
	}
}
