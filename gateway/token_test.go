package gateway_test

import (
	"cmp"
	"log/slog"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/gateway"
	"github.com/drawgate/drawgate/internal/needs"
	"github.com/drawgate/drawgate/internal/syncbuffer"
	"github.com/drawgate/drawgate/llm"
)

// TestMeOfATokenWithoutAnEnd: a token that ends after the year 9999, as of an issuer that writes
// milliseconds, learns what it may use, and not until when.
func TestMeOfATokenWithoutAnEnd(t *testing.T) {
	t.Parallel()
	p, conf := corp(corpURL)
	inBubble(t, withTokens(p, conf, func(*setup) {}), func(t *testing.T, b *bench) {
		for exp, reported := range map[int64]bool{9_999_999_999: true, 1_700_000_000_000: false, 1 << 61: false} {
			if me := b.aboutKey(valid("exp", exp)); me.Key != "corp#alice" || (me.Until != nil) != reported {
				t.Errorf("of exp %d: got %+v", exp, me)
			}
		}
	})
}

// TestTokensAreKeys: a token is taken wherever an SDK puts its key. Rules, limits and what it may
// use are those of its claims and of its issuer's entry. Its name is not that of a key of the file.
func TestTokensAreKeys(t *testing.T) {
	t.Parallel()
	p, conf := corp(corpURL)
	conf.TeamClaim, conf.UserClaim = "team", "email"
	conf.Key = gateway.Key{Class: "batch", Priority: 3}
	for _, name := range llm.Names() {
		conf.Key.Paths = append(conf.Key.Paths, name+"/*")
	}
	conf.Key.Addresses = []netip.Prefix{netip.MustParsePrefix("192.0.2.1/32")}
	own := drawgate.Policy{Name: "caller", Limits: []drawgate.Limit{drawgate.RollingLimit("rpm", 100, time.Hour)}}
	inBubble(t, withTokens(p, conf, func(s *setup) {
		s.policies = []drawgate.Policy{own}
		s.rules = callerRule(`join(attr("key"), attr("team"), attr("user"), class)`)
	}), func(t *testing.T, b *bench) {
		token := valid("team", "red", "email", "alice@example.com")
		want := int64(0)
		for name, a := range apis {
			if got := b.call(name, false, "Hello!", a.key+token); got.status != http.StatusOK {
				t.Errorf("%s: got %d %s", name, got.status, got.body)
			}
			want++
		}
		if got := b.call("openai", false, "Hello!", "Authorization: ", "Api-Key: "+token); got.status != http.StatusOK {
			t.Errorf("Azure's header: got %d %s", got.status, got.body)
		}
		r := b.request(t.Context(), "gemini", false, "Hello!", "X-Goog-Api-Key: ")
		r.URL.RawQuery = url.Values{"key": {token}}.Encode()
		if got := b.do(r); got.status != http.StatusOK {
			t.Errorf("in the query: got %d %s", got.status, got.body)
		}
		want += 2
		r = b.request(t.Context(), "gemini", false, "Hello!", "X-Goog-Api-Key: ")
		r.URL.RawQuery = url.Values{"key": {token[:40] + "\n" + token[40:]}}.Encode()
		if got := b.do(r); got.status != http.StatusUnauthorized {
			t.Errorf("with the end of a line in it: got %d %s", got.status, got.body)
		}
		if got := b.used("caller", "corp#alice|red|alice@example.com|batch")["rpm"]; got != want {
			t.Errorf("%d calls were counted for the token, want %d", got, want)
		}
		b.wantStatus("a key of the file", http.StatusOK, alice)
		if got := b.used("caller", "alice|red|alice@example.com|interactive")["rpm"]; got != 1 {
			t.Errorf("%d calls were counted for the key of the file, want 1", got)
		}
		b.wantStatus("no team", http.StatusUnauthorized, valid("email", "alice@example.com"))
		b.wantStatus("a team that is a list", http.StatusUnauthorized, valid("email", "a", "team", []string{"red"}))
		got := b.call("responses", false, "Hello!", bearer(token), "Drawgate-Priority: 9")
		if got.status != http.StatusOK {
			t.Errorf("a higher priority than it may have: %d %s", got.status, got.body)
		}
	})
}

// TestTokensKeepToTheirEntry: what the issuer's entry does not allow is refused as it is of a key.
func TestTokensKeepToTheirEntry(t *testing.T) {
	t.Parallel()
	elsewhere := []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}
	for name, c := range map[string]struct {
		key    gateway.Key
		status int
	}{
		"another model":   {gateway.Key{Models: []string{"openai/gpt-9"}}, http.StatusNotFound},
		"another path":    {gateway.Key{Paths: []string{"openai/v1/files"}}, http.StatusForbidden},
		"another address": {gateway.Key{Addresses: elsewhere}, http.StatusForbidden},
		"disabled":        {gateway.Key{Disabled: true}, http.StatusUnauthorized},
		"allowed":         {gateway.Key{Models: []string{"openai/gpt-4o"}}, http.StatusOK},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, conf := corp(corpURL)
			conf.Key = c.key
			inBubble(t, withTokens(p, conf, nil), func(_ *testing.T, b *bench) {
				b.wantStatus(name, c.status, valid())
				b.wantStatus("a key of the file", http.StatusOK, alice)
			})
		})
	}
}

// TestTokensStayHere: nothing of a token reaches the provider, wherever the caller put it.
func TestTokensStayHere(t *testing.T) {
	t.Parallel()
	p, conf := corp(corpURL)
	var mu sync.Mutex
	var sent []string // guarded by mu
	upstream := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		var head strings.Builder
		_ = r.Header.Write(&head)
		sent = append(sent, r.URL.String()+"\n"+head.String())
		w.WriteHeader(http.StatusTeapot)
	})
	b := newBench(t, withTokens(p, conf, func(s *setup) { s.upstream = upstream }))
	token := valid()
	headers := [][]string{
		{bearer(token)},
		{"Authorization: bearer  " + token},
		{"Authorization: ", "X-Api-Key: " + token},
		{bearer(token), "X-Api-Key: " + token, "X-Goog-Api-Key: " + token, "Api-Key: " + token, "Cookie: t=" + token},
		{bearer(token), "X_Api_Key: " + token, "Proxy-Authorization: Bearer " + token},
	}
	for _, h := range headers {
		for _, query := range []string{"", "?key=" + token, "?access_token=" + token} {
			r := b.request(t.Context(), "openai", false, "Hello!", h...)
			r.URL.RawQuery = strings.TrimPrefix(query, "?")
			b.do(r)
		}
	}
	b.settled()
	mu.Lock()
	defer mu.Unlock()
	if len(sent) != 3*len(headers) {
		t.Errorf("%d calls reached the provider, want %d", len(sent), 3*len(headers))
	}
	for _, text := range sent {
		for piece := range strings.SplitSeq(token, ".") {
			if strings.Contains(text, piece) {
				t.Errorf("the provider got a part of the token:\n%s", text)
			}
		}
	}
}

// TestForgedKeyNames: 100,000 tokens that name keys that there are not make the gateway ask the
// issuer once in 10 seconds. Those with a right key pass meanwhile.
func TestForgedKeyNames(t *testing.T) {
	t.Parallel()
	forged := needs.Rounds(2_000, 100_000, 100_000)
	if needs.Race {
		forged = min(forged, 3_000)
	}
	const callers = 10
	p, conf := corp(corpURL)
	inBubble(t, withTokens(p, conf, func(s *setup) { s.options.Logger = slog.New(slog.DiscardHandler) }),
		func(t *testing.T, b *bench) {
			time.Sleep(time.Minute)
			before, good := p.fetches(), valid()
			body, sig := part(claims()), strings.Repeat("A", 342)
			var refused atomic.Int64
			var group sync.WaitGroup
			for c := range callers {
				group.Go(func() {
					for i := range forged / callers {
						time.Sleep(10 * time.Second / time.Duration(forged/callers+1))
						name := "forged-" + time.Now().String() + string(rune('a'+c))
						got := b.call("openai", false, "Hello!", bearer(part(header("kid", name))+"."+body+"."+sig))
						if got.status == http.StatusUnauthorized {
							refused.Add(1)
						}
						if i%1000 == 0 {
							b.wantStatus("a right one", http.StatusOK, good)
						}
					}
				})
			}
			group.Wait()
			if n := p.fetches() - before; n != 1 || refused.Load() != int64(forged) {
				t.Errorf("%d fetches and %d refused, want 1 and %d", n, refused.Load(), forged)
			}
			time.Sleep(fetchEvery)
			for range 10 {
				forged := mint(pairs().rsa, "", header("kid", "no"), claims())
				b.wantStatus("forged later", http.StatusUnauthorized, forged)
			}
			if n := p.fetches() - before; n != 2 {
				t.Errorf("%d fetches after 20 seconds, want 2", n)
			}
		})
}

type issuerEntry = gateway.TokenIssuer

// Times that the gateway keeps to.
const (
	fetchEvery   = 10 * time.Second
	refreshEvery = 5 * time.Minute
)

// TestKeysAreFollowed: a key that the issuer adds is known at once, and one that it removes is not
// known any more after at most five minutes, though no token names an unknown one.
func TestKeysAreFollowed(t *testing.T) {
	t.Parallel()
	k := pairs()
	for name, keysURL := range map[string]string{"by its configuration": "", "at their URL": corpURL + "/keys"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, conf := corp(corpURL)
			conf.KeysURL = keysURL
			inBubble(t, withTokens(p, conf, nil), func(_ *testing.T, b *bench) {
				next := func() string { return mint(k.rsa2, "", header("kid", "next"), claims()) }
				b.wantStatus("the first key", http.StatusOK, valid())
				b.wantStatus("a key that is not there yet", http.StatusUnauthorized, next())
				time.Sleep(fetchEvery)
				p.publish(key("rsa", k.rsa), key("next", k.rsa2))
				b.wantStatus("a new key", http.StatusOK, next())
				b.wantStatus("the old one with it", http.StatusOK, valid())
				p.publish(key("next", k.rsa2))
				b.wantStatus("a removed key that was seen a moment ago", http.StatusOK, valid())
				time.Sleep(refreshEvery)
				synctest.Wait()
				b.wantStatus("a removed key", http.StatusUnauthorized, valid())
				b.wantStatus("the key that stayed", http.StatusOK, next())
				p.publish(key("next", k.rsa)) // another key by the same name
				time.Sleep(refreshEvery)
				synctest.Wait()
				b.wantStatus("the key that was replaced", http.StatusUnauthorized, next())
				b.wantStatus("the key in its place", http.StatusOK, mint(k.rsa, "", header("kid", "next"), claims()))
				p.publish()
				time.Sleep(refreshEvery)
				synctest.Wait()
				b.wantStatus("no key at all", http.StatusUnauthorized, valid())
				p.publish(key("", k.rsa))
				time.Sleep(fetchEvery)
				nameless := mint(k.rsa, "", header("kid", drop), claims())
				b.wantStatus("the only key needs no name", http.StatusOK, nameless)
			})
		})
	}
}

// TestManyWaitForOneFetch: callers with a new key wait for the same fetch, and one that leaves does
// not end it.
func TestManyWaitForOneFetch(t *testing.T) {
	t.Parallel()
	k := pairs()
	p, conf := corp(corpURL)
	inBubble(t, withTokens(p, conf, nil), func(t *testing.T, b *bench) {
		time.Sleep(time.Minute)
		before := p.fetches()
		keys, _ := corp(corpURL)
		keys.publish(key("next", k.rsa2))
		p.instead(func(w http.ResponseWriter, r *http.Request) {
			time.Sleep(time.Second)
			keys.ServeHTTP(w, r)
		})
		token := mint(k.rsa2, "", header("kid", "next"), claims())
		var group sync.WaitGroup
		for range 100 {
			group.Go(func() { b.wantStatus("a new key", http.StatusOK, token) })
		}
		group.Wait()
		if n := p.fetches() - before; n != 1 {
			t.Errorf("%d fetches, want 1", n)
		}
	})
}

// TestIssuerUnavailable: before the first fetch tokens get 503 in the provider's form. After it,
// the last known keys stay in force, and the log says so once in ten minutes.
func TestIssuerUnavailable(t *testing.T) {
	t.Parallel()
	const stay, refused = "the last known ones stay in force", "its tokens are refused with 503 until they can"
	var log syncbuffer.Buffer
	var wrong atomic.Int64
	p, conf := corp(corpURL)
	p.instead(down)
	inBubble(t, withTokens(p, conf, func(s *setup) {
		s.options.Logger = slog.New(slog.NewTextHandler(&log, nil))
		s.options.WrongKey = func(string) { wrong.Add(1) }
	}), func(t *testing.T, b *bench) {
		for name, a := range apis {
			got := b.call(name, false, "Hello!", a.key+valid())
			if got.status != http.StatusServiceUnavailable || got.header.Get("Retry-After") != "10" {
				t.Errorf("%s: got %d %v %s, want 503", name, got.status, got.header, got.body)
			}
		}
		b.wantStatus("a key of the file", http.StatusOK, alice)
		b.wantStatus("another issuer's", http.StatusUnauthorized, valid("iss", "https://evil.example.com"))
		said := log.String()
		if strings.Count(said, refused) != 1 || strings.Contains(said, stay) || wrong.Load() != 1 {
			t.Errorf("%d keys were wrong, want 1, and the log says\n%s", wrong.Load(), said)
		}
		p.instead(nil)
		time.Sleep(fetchEvery)
		synctest.Wait()
		b.wantStatus("the issuer is there", http.StatusOK, valid())
		p.instead(down)
		time.Sleep(25 * time.Minute)
		b.wantStatus("the issuer is down", http.StatusOK, valid())
		b.wantStatus("a forged one", http.StatusUnauthorized, mint(pairs().forger, "", header(), claims()))
		b.wantStatus("an unknown key", http.StatusUnauthorized, mint(pairs().rsa2, "", header("kid", "new"), claims()))
		p.instead(nil)
		time.Sleep(time.Minute)
		said = log.String()
		if strings.Count(said, stay) != 3 || strings.Count(said, "were fetched") != 2 {
			t.Errorf("want a line about an issuer that is down in ten minutes, and one when it is back:\n%s", said)
		}
	})
}

// TestAnswersOfIssuers: what an issuer should not answer is not used, and the log says why.
func TestAnswersOfIssuers(t *testing.T) {
	t.Parallel()
	text := func(status int, body string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(status)
			_, _ = w.Write([]byte(body))
		}
	}
	about := func(issuer, keys string) http.HandlerFunc {
		return text(http.StatusOK, string(mustJSON(map[string]string{"issuer": issuer, "jwks_uri": keys})))
	}
	many := text(http.StatusOK, `{"keys":[1`+strings.Repeat(",1", 100)+`]}`)
	slow := func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }
	for name, c := range map[string]struct {
		keysURL string
		answer  http.HandlerFunc
		why     string
	}{
		"an error":           {"", text(http.StatusInternalServerError, "{}"), "the status is 500"},
		"no JSON":            {"", text(http.StatusOK, "<html>"), "is not the JSON that it should be"},
		"nothing":            {"", text(http.StatusOK, ""), "is not the JSON that it should be"},
		"too much":           {"", text(http.StatusOK, strings.Repeat(" ", 1<<20)+"{}"), "more than 1048576 bytes"},
		"another issuer":     {"", about("https://evil.example.com", corpURL+"/keys"), `it is about the issuer \"https://evil`},
		"keys over http":     {"", about(corpURL, "http://login.example.com/keys"), "is not an https URL"},
		"keys in a file":     {"", about(corpURL, "file:///etc/passwd"), "is not an https URL"},
		"a user in the URL":  {"", about(corpURL, "https://a:b@login.example.com/keys"), "is not an https URL"},
		"no URL of keys":     {"", about(corpURL, ""), "is not an https URL"},
		"no list of keys":    {corpURL + "/keys", text(http.StatusOK, `{}`), "it has no list of keys"},
		"keys that are text": {corpURL + "/keys", text(http.StatusOK, `{"keys":"rsa"}`), "is not the JSON that it should be"},
		"keys that are null": {corpURL + "/keys", text(http.StatusOK, `{"keys":null}`), "it has no list of keys"},
		"more than 100 keys": {corpURL + "/keys", many, "it has 101 keys"},
		"it takes too long":  {"", slow, "context deadline exceeded"},
		"it is somewhere else": {"", func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, corpURL+"/other", http.StatusFound)
		}, "it is redirected"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var log syncbuffer.Buffer
			p, conf := corp(corpURL)
			p.instead(c.answer)
			conf.KeysURL = c.keysURL
			logged := func(s *setup) { s.options.Logger = slog.New(slog.NewTextHandler(&log, nil)) }
			inBubble(t, withTokens(p, conf, logged),
				func(t *testing.T, b *bench) {
					began := time.Now()
					b.wantStatus(name, http.StatusServiceUnavailable, valid())
					if took := time.Since(began); took > 5*time.Second {
						t.Errorf("the caller waited for %v", took)
					}
				})
			if said := log.String(); !strings.Contains(said, c.why) || !strings.Contains(said, "issuer="+corpURL) {
				t.Errorf("the log does not say %q:\n%s", c.why, said)
			}
		})
	}
}

// TestReloadKeepsKeys: a reload that leaves an issuer where it was keeps the keys that were
// fetched; other settings of it change at once. An issuer that is not listed any more is not asked
// any more, and after the end none is.
func TestReloadKeepsKeys(t *testing.T) {
	t.Parallel()
	p, conf := corp(corpURL)
	inBubble(t, withTokens(p, conf, nil), func(t *testing.T, b *bench) {
		b.wantStatus("at first", http.StatusOK, valid())
		p.instead(down)
		before := p.fetches()
		use := func(change func(*issuerEntry), issuers ...gateway.TokenIssuer) {
			next := b.conf
			if next.Tokens = issuers; change != nil {
				c := conf
				change(&c)
				next.Tokens = []gateway.TokenIssuer{c}
			}
			if err := b.h.Use(next); err != nil {
				t.Error(err)
			}
		}
		use(nil, conf)
		b.wantStatus("the same again", http.StatusOK, valid())
		use(func(c *issuerEntry) { c.Key.Disabled = true })
		b.wantStatus("disabled", http.StatusUnauthorized, valid())
		use(func(c *issuerEntry) { c.Audiences = []string{"other"} })
		b.wantStatus("another audience", http.StatusUnauthorized, valid())
		use(func(c *issuerEntry) { c.Algorithms = []string{"ES256"} })
		b.wantStatus("another algorithm", http.StatusUnauthorized, valid())
		use(nil, conf)
		b.wantStatus("as it was", http.StatusOK, valid())
		if n := p.fetches() - before; n != 0 {
			t.Errorf("%d fetches for reloads that changed no issuer", n)
		}
		use(func(c *issuerEntry) { c.KeysURL = corpURL + "/other" })
		b.wantStatus("keys elsewhere", http.StatusServiceUnavailable, valid())
		use(nil)
		before = p.fetches()
		b.wantStatus("removed", http.StatusUnauthorized, valid())
		time.Sleep(time.Hour)
		if n := p.fetches() - before; n != 0 {
			t.Errorf("%d fetches from an issuer that is not listed", n)
		}
		use(nil, conf)
		b.h.Close()
		before = p.fetches()
		time.Sleep(time.Hour)
		if n := p.fetches() - before; n != 0 {
			t.Errorf("%d fetches after the end", n)
		}
	})
}

// TestNamesOfTokens: no two issuers can give a key the same name, and none can give it the name of
// a key of the file, whatever their tokens say: such a configuration is refused, and no other one.
func TestNamesOfTokens(t *testing.T) {
	t.Parallel()
	const a, b = "https://a.example.com", "https://b.example.com"
	p, conf := corp(a)
	h := newBench(t, withTokens(p, conf, nil))
	prefix := func(url, name string) string { return cmp.Or(name, url) + "#" }
	names := []string{"", "corp", "corp2", "alice", "a"}
	keys := []string{
		"corp", "corp#", "corp#alice", "corp2#a#b", "corp3#alice", "#", "a", "a#", b, a + "#", a + "#alice", b + "#x",
	}
	for _, one := range names {
		for _, two := range names {
			for _, name := range keys {
				first, second := prefix(a, one), prefix(b, two)
				want := first != second && !strings.HasPrefix(name, first) && !strings.HasPrefix(name, second)
				next, other := h.conf, conf
				next.Keys = append(next.Keys[:1:1], gateway.Key{Name: name, Sum: [32]byte{1}})
				other.Issuer, other.Name = b, two
				conf.Name = one
				next.Tokens = []gateway.TokenIssuer{conf, other}
				if err := h.h.Use(next); (err == nil) != want {
					t.Errorf("issuers %q and %q, and the key %q: %v, want an error: %v", first, second, name, err, !want)
				}
			}
		}
	}
}

// TestIssuersThatAreRefused: a mistake in the entry of an issuer is an error, which names it.
func TestIssuersThatAreRefused(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	for name, c := range map[string]struct {
		change func(*issuerEntry)
		why    string
	}{
		"none":                 {func(c *issuerEntry) { c.Algorithms = []string{"none"} }, `"none" is not one of`},
		"a shared secret":      {func(c *issuerEntry) { c.Algorithms = []string{"HS256"} }, `"HS256" is not one of`},
		"no algorithm":         {func(c *issuerEntry) { c.Algorithms = nil }, "at least one algorithm"},
		"no audience":          {func(c *issuerEntry) { c.Audiences = nil }, "need an audience"},
		"an empty audience":    {func(c *issuerEntry) { c.Audiences = []string{""} }, "need an audience"},
		"http":                 {func(c *issuerEntry) { c.Issuer = "http://login.example.com" }, "use https"},
		"keys by http":         {func(c *issuerEntry) { c.KeysURL = "http://login.example.com/keys" }, "use https"},
		"a query":              {func(c *issuerEntry) { c.Issuer += "?" }, "without user, query and fragment"},
		"a fragment":           {func(c *issuerEntry) { c.Issuer += "#" }, "without user, query and fragment"},
		"a user":               {func(c *issuerEntry) { c.Issuer = "https://a@b.example.com" }, "without user, query and fragment"},
		"no URL":               {func(c *issuerEntry) { c.Issuer = "corp" }, "not an https URL"},
		"a long URL":           {func(c *issuerEntry) { c.Issuer += strings.Repeat("x", 256) }, "more than 256 bytes"},
		"a name with the mark": {func(c *issuerEntry) { c.Name = "a#b" }, "letters, digits, - and _"},
		"a name of a key":      {func(c *issuerEntry) { c.Key.Name = "alice" }, "has a name, a secret or an end"},
		"a secret":             {func(c *issuerEntry) { c.Key.Sum = [32]byte{1} }, "has a name, a secret or an end"},
		"secrets":              {func(c *issuerEntry) { c.Key.Secrets = make([]gateway.KeySecret, 2) }, "has a name, a secret or an end"},
		"an end":               {func(c *issuerEntry) { c.Key.Expires = time.Now() }, "has a name, a secret or an end"},
		"two teams":            {func(c *issuerEntry) { c.TeamClaim, c.Key.Team = "t", "red" }, "leave one of them"},
		"priority":             {func(c *issuerEntry) { c.Key.Priority = 10 }, "priority 10"},
	} {
		_, conf := corp(corpURL)
		c.change(&conf)
		next := b.conf
		next.Tokens = []gateway.TokenIssuer{conf}
		if err := b.h.Use(next); err == nil || !strings.Contains(err.Error(), c.why) {
			t.Errorf("%s: got %v, want %q", name, err, c.why)
		}
	}
	for _, url := range []string{corpURL, corpURL + "/", "http://127.0.0.1:1", "http://[::1]:1", "http://localhost"} {
		if err := gateway.CheckIssuerURL(url); err != nil {
			t.Errorf("%s: %v", url, err)
		}
	}
}
