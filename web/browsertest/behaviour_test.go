package browsertest

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/drawgate/drawgate/internal/needs"
)

// accessible checks that nobody is kept from using what the page shows: axe finds nothing serious
// or critical.
func (b *tab) accessible(what string) {
	b.t.Helper()
	code, err := os.ReadFile(needs.Tool(b.t, "web-node/node_modules/axe-core/axe.min.js"))
	b.must(err)
	eval[bool](b, string(code)+"; true")
	found := eval[string](b, `axe.run(document).then((r) => JSON.stringify(r.violations.filter((v) => v.impact === 'serious' || v.impact === 'critical')
		.map((v) => ({ id: v.id, help: v.help, nodes: v.nodes.map((n) => n.html + ' ' + n.failureSummary) }))))`)
	var all []json.RawMessage
	b.must(json.Unmarshal([]byte(found), &all))
	for _, v := range all {
		b.t.Errorf("%s: %s", what, v)
	}
}

func TestPageIsAccessible(t *testing.T) {
	s := lively(t)
	b := open(t, s.admin+"/")
	b.shows("#buckets", "11 buckets")
	b.shows("#incidents", "the provider says")
	b.must(click(b, "#load"))
	b.shows("#history", "team-a")
	for _, dark := range []bool{false, true} {
		b.dark(dark)
		for _, width := range []int64{1280, 360} {
			b.must(chromedp.Do(b.ctx, chromedp.EmulateViewport(width, 800)))
			b.accessible(fmt.Sprintf("dark %v, %d wide", dark, width))
			if wide := eval[int](b, "document.documentElement.scrollWidth"); wide > int(width) {
				t.Errorf("a screen of %d pixels has to be scrolled sideways to %d", width, wide)
			}
		}
		b.must(chromedp.Do(b.ctx, chromedp.EmulateViewport(1280, 800)))
		b.must(click(b, "#buckets tbody button"))
		b.shows("#detail .note", "As of")
		b.accessible(fmt.Sprintf("detail, dark %v", dark))
		b.keys(kb.Escape)
		b.hides("#detail")
	}
	b.quiet(s.admin)
}

// Everything can be reached and done with the keyboard.
func TestKeyboard(t *testing.T) {
	s := serve(t, simple)
	for i, n := range []int{5, 3, 1} {
		for range n {
			s.take(fields{"policy": "p", "key": fmt.Sprintf("key-%d", i)})
		}
	}
	b := open(t, s.admin+"/")
	b.shows("#buckets", "3 buckets")
	focus := func(want string) {
		t.Helper()
		b.await(fmt.Sprintf("(document.activeElement.id || document.activeElement.textContent) === %s", quote(want)))
	}
	b.keys(kb.Tab)
	focus("Skip to the buckets")
	b.keys(kb.Tab)
	focus("filter")
	for _, want := range []string{
		"tenant", "Refusals", "Waiting callers", "Buckets in use 3", "Policies", "refusals",
		"waiting", "Key", "Policy", "Used", "Reservations", "key-0",
	} {
		b.keys(kb.Tab)
		b.await(fmt.Sprintf("(document.activeElement.id || document.activeElement.closest('[role=region]')?.closest('section').id || document.activeElement.textContent) === %s ||"+
			" document.activeElement.textContent === %[1]s", quote(want)))
		if !eval[bool](b,
			"document.activeElement.matches(':focus-visible') && getComputedStyle(document.activeElement).outlineStyle === 'solid'") {
			t.Errorf("nobody sees that %s has the focus", want)
		}
	}
	for _, step := range []struct{ key, want string }{
		{kb.ArrowDown, "key-1"}, {kb.End, "key-2"}, {kb.ArrowDown, "key-2"}, {kb.ArrowUp, "key-1"}, {kb.Home, "key-0"},
	} {
		b.keys(step.key)
		focus(step.want)
	}
	// A row with the focus keeps its place, and the focus, whatever others use.
	for range 9 {
		s.take(fields{"policy": "p", "key": "key-2"})
	}
	b.shows("#buckets tbody", "10 of 1,000")
	focus("key-0")
	if got := b.text("#buckets tbody tr:first-child th"); got != "key-0" {
		t.Errorf("the first row is %q", got)
	}
	b.keys(kb.Enter)
	b.shows("#detail", "p: key-0", "rolling", "5 of 1,000 requests", "995")
	b.keys(kb.Escape)
	b.hides("#detail")
	focus("key-0")
	b.slash()
	focus("filter")
	b.await("document.querySelector('#buckets tbody th').textContent === 'key-2'") // in order again
	b.keys("Y-1")
	b.await("document.querySelectorAll('#buckets tbody tr').length === 1")
	b.shows("#buckets", "1 bucket,", "with “Y-1” in", "key-1")
	b.slash() // a character like any other
	b.shows("#buckets .note", "No bucket is in use", "Y-1/")
	b.must(chromedp.Do(b.ctx, chromedp.KeyEvent("a", chromedp.KeyModifiers(chromedp.ModifierCtrl)),
		chromedp.KeyEvent(kb.Delete)))
	b.await("document.querySelectorAll('#buckets tbody tr').length === 3")
	// Sorting by another column, and back.
	eval[bool](b, "document.querySelector('[data-sort=key]').focus(), true")
	b.keys(kb.Enter)
	b.await("document.querySelector('#buckets tbody th').textContent === 'key-0'")
	if got := eval[string](b,
		"document.activeElement.closest('th').ariaSort + document.querySelectorAll('[aria-sort]').length"); got != "ascending1" {
		t.Errorf("sorted: %s", got)
	}
	b.keys(kb.Enter)
	b.await("document.querySelector('#buckets tbody th').textContent === 'key-2'")
	b.quiet(s.admin, "/v1/history")
}

// Names that are made to do harm are shown as they are.
//
// req: E4
func TestHostileKeysDoNothing(t *testing.T) {
	s := serve(t, simple)
	hostile := []struct{ key, shown string }{
		{`<img src=x onerror="window.harm=1">`, ""},
		{`<script>window.harm=1</script>`, ""},
		{`"><svg onload=window.harm=1>`, ""},
		{`' onfocus='window.harm=1' autofocus x='`, ""},
		{`{{constructor.constructor('window.harm=1')()}}`, ""},
		{`javascript:window.harm=1`, ""},
		{`__proto__`, ""},
		{`constructor`, ""},
		{`\u202e`, ""},
		{`%3Cscript%3E`, ""},
		{"line\nbreak\ttab\x00nul\x1b[31mred", `line\nbreak\ttab\x00nul\x1b[31mred`},
		{"safe\u202eexe.txt\u2066x\u2069", `safe\u202eexe.txt\u2066x\u2069`},
		{"zero\u200bwidth\ufeff\u00a0\u2028\u2029\u0085", `zero\u200bwidth\ufeff\u00a0\u2028\u2029\u0085`},
		{"tag\U000e0041", `tag\U000e0041`},
		{"two  spaces ", ""},
		{"日本語 🎉 עברית", ""},
		{strings.Repeat("long", 200), ""},
	}
	for _, h := range hostile {
		s.take(fields{"policy": "p", "key": h.key, "tenant": ""})
	}
	b := open(t, s.admin+"/")
	b.shows("#buckets", fmt.Sprintf("%d buckets", len(hostile)))
	var keys []string
	b.must(json.Unmarshal([]byte(eval[string](b,
		"JSON.stringify([...document.querySelectorAll('#buckets .key')].map((k) => k.textContent))")), &keys))
	shown := map[string]bool{}
	for _, k := range keys {
		shown[k] = true
	}
	for _, h := range hostile {
		want := h.shown
		if want == "" {
			want = h.key
		}
		if len(want) > 256 { // the server has it by its beginning and a hash
			continue
		}
		if !shown[want] {
			t.Errorf("%q is not shown as %q: %q", h.key, want, keys)
		}
	}
	for i := range hostile { // each has a detail
		eval[bool](b, fmt.Sprintf("document.querySelectorAll('#buckets .key')[%d].click(), true", i))
		b.shows("#detail .note", "As of")
		b.shows("#detail tbody", "1 of 1,000 requests")
		b.keys(kb.Escape)
		b.hides("#detail")
	}
	b.slash()
	b.must(chromedp.Do(b.ctx, chromedp.SendKeys(chromedp.CSS("#filter"), `<SCRIPT>`)))
	b.await("document.querySelectorAll('#buckets tbody tr').length === 1")
	if eval[bool](b,
		"'harm' in window || document.querySelectorAll('#buckets img, #buckets script, #buckets svg:not(.spark)').length > 0") {
		t.Error("a key became HTML")
	}
	if wide := eval[int](b, "document.documentElement.scrollWidth"); wide > 1280 {
		t.Errorf("the page is %d pixels wide", wide)
	}
	b.quiet(s.admin, "/v1/history")
}

// req: E4
func TestAccessToken(t *testing.T) {
	const admin, reader, taker = "the-secret-of-an-administrator", "the-secret-of-one-who-reads",
		"the-secret-of-one-who-takes"
	t.Setenv("ADMIN", admin)
	t.Setenv("READER", reader)
	t.Setenv("TAKER", taker)
	s := serve(t, simple+"server: {tokens: [{name: a, token_env: ADMIN, role: admin}, {name: r, token_env: READER, role: read}, {name: t, token_env: TAKER, role: take}]}\n")
	s.token = admin
	s.take(fields{"policy": "p", "key": "secret-key"})
	b := open(t, s.admin+"/")
	give := func(token string) {
		t.Helper()
		b.must(chromedp.Do(b.ctx, chromedp.SendKeys(chromedp.CSS("#token"), token+kb.Enter, chromedp.NodeVisible)))
	}
	b.shows("#login", "This server needs an access token.")
	b.await("document.activeElement.id === 'token'")
	if strings.Contains(b.text("body"), "secret-key") {
		t.Error("a key is shown to somebody without a token")
	}
	b.accessible("the form")
	before := b.asked("/v1/")
	give("a-secret-that-nobody-has")
	b.shows("#login", "The server refused the access token: this server does not know the access token.")
	give("ein-schlüssel-den-es-nicht-gibt")
	b.shows("#login", "characters that no token has")
	give(taker)
	b.hides("#login")
	b.shows("#buckets", "This access token may not see this: this access token does not have the role admin.")
	b.shows("#policies", "does not have the role read")
	b.must(click(b, "#forget"))
	b.shows("#login", "This server needs an access token.")
	give(reader)
	b.shows("#policies", "enforced")
	b.shows("#buckets", "may not see this")
	b.must(click(b, "#forget"))
	b.shows("#login", "This server needs an access token.")
	give(admin)
	b.shows("#buckets", "secret-key")
	b.visit(s.admin + "/") // the tab knows the token
	b.shows("#buckets", "secret-key")
	b.hides("#login")
	b.mu.Lock()
	for _, u := range b.requests {
		if plain, _ := url.QueryUnescape(u); strings.Contains(plain, "the-secret") {
			t.Errorf("a token is in %s", u)
		}
	}
	b.mu.Unlock()
	other := open(t, s.admin+"/")
	other.shows("#login", "This server needs an access token.")
	if b.asked("/v1/") == before {
		t.Error("nothing was asked")
	}
	b.quiet(s.admin, "401", "403", "501")
}

// While the server is away, the page says so, keeps what it has, and goes on by itself.
//
// req: D8
func TestServerAwayAndBack(t *testing.T) {
	s := serve(t, simple)
	s.take(fields{"policy": "p", "key": "before"})
	p := s.behindProxy() // the server's own port may be taken when it comes back
	b := open(t, p.URL+"/")
	b.shows("#buckets", "before")
	s.stop()
	b.shows("#away", "The server has not answered since")
	b.shows("#buckets", "before")
	b.accessible("without the server")
	s.start("127.0.0.1:0")
	p.forward(s)
	b.hides("#away")
	s.take(fields{"policy": "p", "key": "after"})
	b.shows("#buckets", "after")
	if strings.Contains(b.text("#buckets tbody"), "before") { // it was in the memory of the old process
		t.Error("what is gone is still shown")
	}
	b.quiet(p.URL, "/v1/history", "ERR_CONNECTION_REFUSED", "ERR_CONNECTION_RESET", "ERR_EMPTY_RESPONSE",
		"ERR_INCOMPLETE_CHUNKED_ENCODING")
}

// A page that nobody sees asks for nothing. It asks again at once when it is seen.
func TestHiddenPageAsksNothing(t *testing.T) {
	s := serve(t, simple)
	s.take(fields{"policy": "p", "key": "k"})
	b := open(t, s.admin+"/")
	b.shows("#buckets", "1 bucket")
	hide := func(hidden bool) {
		t.Helper()
		eval[bool](b, fmt.Sprintf("Object.defineProperty(document, 'hidden', { value: %v, configurable: true }); document.dispatchEvent(new Event('visibilitychange'))", hidden))
	}
	hide(true)
	// Count the questions for longer than between two of them, by the same clock.
	n := eval[int](b, `new Promise((done) => {
		let n = 0;
		const ask = window.fetch;
		window.fetch = (...request) => { n++; return ask(...request); };
		setTimeout(() => { window.fetch = ask; done(n); }, 2500);
	})`)
	if n != 0 {
		t.Errorf("%d requests of a hidden page", n)
	}
	s.take(fields{"policy": "p", "key": "new"})
	hide(false)
	b.shows("#buckets", "2 buckets", "new")
	b.quiet(s.admin, "/v1/history")
}

// Of many buckets the page shows some, says so, and shows more on request; the filter finds the
// others.
func TestManyBuckets(t *testing.T) {
	s := serve(t, simple)
	s.fill(1500)
	b := open(t, s.admin+"/")
	b.shows("#buckets .note", "20 of 1,500 buckets", "These are the most used ones: filter to see others.")
	b.await("document.querySelectorAll('#buckets tbody tr').length === 20")
	for _, c := range []struct{ button, shown string }{
		{"Show 200", "200 of 1,500 buckets"},
		{"Show all up to 1,000", "1,000 of 1,500 buckets"},
	} {
		b.shows("#buckets .more", c.button)
		b.must(click(b, "#buckets .more"))
		b.shows("#buckets .note", c.shown, "filter to see others")
	}
	b.hides("#buckets .more")
	b.must(chromedp.Do(b.ctx, chromedp.SendKeys(chromedp.CSS("#filter"), "USER-0142", chromedp.NodeVisible)))
	b.await("document.querySelectorAll('#buckets tbody tr').length === 10")
	b.quiet(s.admin, "/v1/history")
}

// fill takes once for each of many keys.
func (s *server) fill(n int) {
	s.t.Helper()
	for first := 0; first < n; first += 100 {
		var takes []fields
		for i := first; i < min(n, first+100); i++ {
			takes = append(takes, fields{"policy": "p", "key": fmt.Sprintf("user-%05d", i)})
		}
		s.take(fields{"takes": takes})
	}
}

// The page cannot be shown inside another one, and other pages can read nothing of the server.
func TestOtherPagesAreKeptOut(t *testing.T) {
	s := serve(t, simple)
	s.take(fields{"policy": "p", "key": "secret-key"})
	page := fmt.Sprintf(`<!DOCTYPE html><iframe src=%q></iframe><a href=%[1]q>Drawgate</a>`, s.admin+"/")
	other := &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(w http.ResponseWriter,
		_ *http.Request,
	) {
		w.Header().Set("Content-Type", "text/html")
		_, _ = w.Write([]byte(page))
	})}
	b := open(t, listen(t, other))
	for _, path := range []string{"/v1/usage", "/v1/policies", "/page/app.js"} {
		if got := eval[string](b, fmt.Sprintf("fetch(%s).then((r) => r.text(), () => 'refused')",
			quote(s.admin+path))); got != "refused" {
			t.Errorf("another page reads %s: %.80s", path, got)
		}
	}
	b.await("document.querySelector('iframe').contentDocument === null")
	b.must(click(b, "a")) // whoever follows a link sees it
	b.shows("#buckets", "secret-key")
}

// Without JavaScript there is a message.
func TestWithoutJavaScript(t *testing.T) {
	s := serve(t, simple)
	b := newTab(t)
	_, err := chromedp.Call(b.ctx, emulation.SetScriptExecutionDisabled,
		emulation.SetScriptExecutionDisabledParams{Value: true})
	b.must(err)
	b.visit(s.admin + "/")
	text, err := chromedp.Run(b.ctx, chromedp.Text(chromedp.CSS("main"), chromedp.NodeVisible))
	if err != nil || !strings.Contains(text, "This page needs JavaScript") ||
		!strings.Contains(text, "drawgate status") || strings.Contains(text, "Access token") {
		t.Errorf("%v: %q", err, text)
	}
	b.quiet(s.admin)
}
