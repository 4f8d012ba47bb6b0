package browsertest

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/drawgate/drawgate/internal/redistest"
)

// Refusals are shown as they happen: by which limit, and how many. A token for one tenant sees its
// own only.
//
// req: A13, E4
func TestRefusalsAreShown(t *testing.T) {
	const admin, bound = "the-secret-of-an-administrator", "the-secret-of-one-tenant"
	t.Setenv("ADMIN", admin)
	t.Setenv("BOUND", bound)
	s := serve(t, `
store: "memory:"
policies: {llm: {limits: [{name: rpm, rolling: 24h, amount: 1}, {name: tpm, unit: tokens, rolling: 24h, amount: 100}]}}
server: {tokens: [{name: a, token_env: ADMIN, role: admin}, {name: b, token_env: BOUND, role: admin, tenant: acme}]}
`)
	s.token = admin
	b := open(t, s.admin+"/")
	b.must(chromedp.Do(b.ctx, chromedp.SendKeys(chromedp.CSS("#token"), admin+"\r", chromedp.NodeVisible)))
	b.shows("#refusals", "Nothing was refused since")
	b.hides("#refusals table")
	for range 3 {
		s.take(fields{"policy": "llm", "key": "team-a", "costs": fields{"tokens": 30}})
	}
	for range 2 {
		s.take(fields{"policy": "llm", "key": "<b>team</b>", "costs": fields{"tokens": 70, "requests": 0}})
	}
	b.shows("#refusals", "2 lines", "team-a", "rpm: asked for 1 request, 0 of 1 left", "<b>team</b>",
		"tpm: asked for 70 tokens, 30 of 100 left")
	b.shows("#parts", "Refusals 2")
	b.await("[...document.querySelectorAll('#refusals tbody tr')].at(-1).children[2].textContent === '2'")
	s.take(fields{"policy": "llm", "key": "team-a"})
	b.await("document.querySelector('#refusals tbody tr').textContent.includes('team-a') && document.querySelector('#refusals tbody tr').children[2].textContent === '3'")
	b.must(click(b, `#parts a[href="#refusals"]`))
	other := open(t, s.admin+"/")
	other.must(chromedp.Do(other.ctx, chromedp.SendKeys(chromedp.CSS("#token"), bound+"\r", chromedp.NodeVisible)))
	other.shows("#refusals", "Nothing was refused")
	for range 2 {
		s.take(fields{"policy": "llm", "tenant": "acme", "key": "theirs"})
	}
	other.shows("#refusals", "theirs", "of tenant acme")
	if text := other.text("#refusals"); len(text) == 0 || strings.Contains(text, "team-a") {
		t.Errorf("a token of another tenant shows %s", text)
	}
	b.quiet(s.admin, "401", "/v1/history")
}

// troubled is a server on a Redis, with many buckets, and callers that are refused or wait.
func troubled(t *testing.T) (*server, *redistest.Server) {
	t.Helper()
	redis := redistest.Start(t)
	s := serve(t, fmt.Sprintf(`
store: %s
store_timeout: 10s # a slow machine is no outage
instances: 1
policies:
  p: {fallback: share, limits: [{name: day, rolling: 24h, amount: 1000}]}
  llm: {fallback: closed, limits: [{name: rpm, rolling: 24h, amount: 2}]}
  tiers: {limits: [{name: minute, rolling: 1m, amount: 20, fallback: share}, {name: month, rolling: 30d, amount: 900, fallback: open}]}
  free: {fallback: open, limits: [{name: day, rolling: 24h, amount: 10}]}
  builds: {fallback: closed, limits: [{name: at-once, concurrency: 1}]}
`, redis.URL()))
	s.fill(2000)
	s.take(fields{"policy": "builds", "key": "deploy-to-production", "hold_ms": 600_000})
	for range 3 {
		go func() { // waits until the server ends
			res, err := http.Post(s.public+"/v1/take", "application/json",
				body(`{"policy":"builds","key":"deploy-to-production","hold_ms":1000,"wait_ms":600000}`))
			if err == nil {
				_ = res.Body.Close()
			}
		}()
	}
	for i := range 40 {
		for range 3 + i%3 {
			s.take(fields{"policy": "llm", "key": fmt.Sprintf("customer-%03d", i)})
		}
	}
	return s, redis
}

// While the store is unavailable the page says what the fallback of each policy does, and from when
// its numbers are.
//
// req: A13, D8
func TestStoreUnavailable(t *testing.T) {
	s, redis := troubled(t)
	b := open(t, s.admin+"/")
	b.shows("#buckets .note", "20 of ")
	b.hides("#outage")
	redis.Kill9()
	b.shows("#outage", "The store has been unavailable since", "builds, llm: every take is refused (fallback: closed).",
		"p: this server admits its share (fallback: share).",
		"tiers: this server admits its share (fallback: share); not applied: month (fallback: open).",
		"free: every take is admitted (fallback: open).")
	b.shows("#facts", "decides by fallbacks", "store unavailable")
	b.shows("#buckets .note", "What is shown is from")
	b.await("document.querySelector('#buckets').classList.contains('old') && document.querySelectorAll('#buckets tbody tr').length === 20")
	b.shows("#policies", "store unavailable: every take is refused")
	if text := b.text("body"); strings.Contains(text, "cannot") {
		t.Errorf("fallbacks decide, but the page says that something cannot:\n%s", text)
	}
	b.accessible("without the store")
	redis.Restart()
	b.hides("#outage")
	b.await("!document.querySelector('#buckets').classList.contains('old')")
	b.shows("#facts", "store ok")
	b.quiet(s.admin, "503", "/v1/history")
}

// A narrow screen shows what a wide one does, and what needs somebody comes first.
//
// req: A13
func TestNarrowScreen(t *testing.T) {
	s, _ := troubled(t)
	b := newTab(t)
	b.must(chromedp.Do(b.ctx, chromedp.EmulateViewport(390, 844)))
	b.visit(s.admin + "/")
	b.shows("#buckets .note", "20 of ")
	b.shows("#refusals .note", "10 of 40 lines")
	b.shows("#waiting", "deploy-to-production", "3", "reservations to end")
	if wide := eval[int](b, "document.documentElement.scrollWidth"); wide > 390 {
		t.Errorf("it has to be scrolled sideways to %d pixels", wide)
	}
	// "For" of who waits has room for its words, which are on one line.
	if high := eval[float64](b,
		"document.querySelector('#waiting tbody tr').lastElementChild.getBoundingClientRect().height"); high > 30 {
		t.Errorf("the reason is %v pixels high", high)
	}
	order := eval[string](b,
		"[...document.querySelectorAll('main > section')].filter((s) => s.checkVisibility()).map((s) => s.id).join(' ')")
	if want := "refusals waiting buckets policies absent"; order != want {
		t.Errorf("the parts are %s, want %s", order, want)
	}
	if top := eval[float64](b, "document.querySelector('#refusals').getBoundingClientRect().top"); top > 844 {
		t.Errorf("refusals are %v pixels below", top)
	}
	b.must(click(b, `#parts a[href="#buckets"]`))
	b.await("Math.abs(document.querySelector('#buckets').getBoundingClientRect().top) < 5")
	if got := eval[string](b,
		"document.querySelector('#buckets table').role + document.querySelector('#buckets tbody tr').role"); got != "tablerow" {
		t.Errorf("who hears the page hears no table: %q", got)
	}
	b.must(click(b, "#refusals .more"))
	b.await("document.querySelectorAll('#refusals tbody tr').length === 40")
	b.quiet(s.admin, "/v1/history")
}

// With many buckets, while takes are refused and then without the store: on every kind of screen
// nobody is kept from reading it. With -pictures the pictures are written to the folder
// DRAWGATE_PICTURES, to look at.
//
// req: A13
func TestTroubleOnEveryScreen(t *testing.T) {
	s, redis := troubled(t)
	s.takes(100*time.Millisecond, func(i int) string { // they are refused
		return fmt.Sprintf(`{"policy":"llm","key":"customer-%03d"}`, i%7)
	})
	b := open(t, s.admin+"/")
	b.shows("#buckets .note", "20 of ")
	b.shows("#waiting", "deploy")
	for _, state := range []string{"busy", "away"} {
		if state == "away" {
			redis.Kill9()
			b.shows("#outage", "The store has been unavailable since")
			b.shows("#buckets .note", "What is shown is from")
		}
		for _, dark := range []bool{false, true} {
			b.dark(dark)
			for _, width := range []int64{1280, 390} {
				b.must(chromedp.Do(b.ctx, chromedp.EmulateViewport(width, 844)))
				name := fmt.Sprintf("%s, dark %v, %d wide", state, dark, width)
				b.accessible(name)
				if wide := eval[int](b, "document.documentElement.scrollWidth"); wide > int(width) {
					t.Errorf("%s: it has to be scrolled sideways to %d", name, wide)
				}
				if dir := os.Getenv("DRAWGATE_PICTURES"); dir != "" {
					picture, err := chromedp.Run(b.ctx, chromedp.FullScreenshot(100))
					b.must(err)
					b.must(os.WriteFile(filepath.Join(dir, name+".png"), picture, 0o600))
				}
			}
		}
	}
	b.quiet(s.admin, "503", "/v1/history")
}
