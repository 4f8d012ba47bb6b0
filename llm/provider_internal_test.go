package llm

import (
	"go/ast"
	"go/parser"
	"go/token"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/drawgate/drawgate"
)

// invented is a provider that nobody has: its API is like OpenAI's, with limits and words of its
// own.
var invented = openAI.like("invented", "https://api.invented.test", func() *Profile {
	p := openAIProfile()
	p.Units = []string{drawgate.UnitRequests, UnitInputTokens, UnitOutputTokens}
	p.Families = []Family{{
		Name: "smart", Prefixes: []string{"smart-"}, Context: 1000, MaxOutput: 200, Reasons: ReasonsNever,
	}}
	p.OwnerHeaders = nil
	return p
}, func(v *provider) {
	v.keyHeader = "X-Invented-Key"
	v.known = openAIKnown.withFree("request", "invented_seed")
	v.askUsage, v.streamed = false, streamedOver
	v.cacheApart = true
	v.limits = []limitHeader{canonical(limitHeader{
		unit: UnitInputTokens, limit: "x-tokens", remaining: "x-tokens-left", reset: "x-tokens-back",
	})}
	v.refusal = func(p *Profile, r *Refusal, e *errorBody, h http.Header, now time.Time) {
		if r.plain() || r.Status != http.StatusTooManyRequests {
			return
		}
		r.Meaning = PerMinute
		if e.Type == "daily" {
			r.Meaning = PerDay
		}
		r.Unit = p.spent(h, now)
		r.reopen(p, r.RetryAfter, p.fullAt(h, r.Unit, now), now)
	}
})

// TestInventedProvider: a provider is a value. Its calls are estimated, its usage is read, and its
// refusals are judged by what it says.
func TestInventedProvider(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	p := invented.newProfile()
	if p.Name != "invented" || p.KeyHeader() != "X-Invented-Key" {
		t.Errorf("profile %q with its key in %s", p.Name, p.KeyHeader())
	}
	c, err := p.Parse(http.MethodPost, "/v1/chat/completions", nil,
		[]byte(`{"model":"smart-1","stream":true,"invented_seed":7,"messages":[{"role":"user","content":"Hello, world!"}]}`))
	if err != nil {
		t.Fatal(err)
	}
	held := p.Upper(c)
	if c.Family != "smart" || c.Unknown > 0 || c.NeedsUsage() || held.Input < 3 || held.Output != 200 {
		t.Errorf("family %s, unknown %d, needs usage %v, estimate %+v", c.Family, c.Unknown, c.NeedsUsage(), held)
	}
	want := []drawgate.Cost{
		drawgate.Units(drawgate.UnitRequests, 1), drawgate.Units(UnitInputTokens, held.Input),
		drawgate.Units(UnitOutputTokens, 200),
	}
	if got := p.Admission(c, held); !slices.Equal(got, want) {
		t.Errorf("reserves %v, want %v", got, want)
	}

	s := p.NewStream(c)
	_, _ = s.Write([]byte(`data: {"choices":[{"delta":{"content":"Hi"}}]}` + "\n\n" +
		`data: {"choices":[{"finish_reason":"stop"}],` +
		`"usage":{"prompt_tokens":4,"prompt_tokens_details":{"cached_tokens":6},"completion_tokens":2}}` + "\n\n"))
	_ = s.Close()
	u := s.Usage()
	if !u.Final || u.Input != 10 || u.CacheRead != 6 || u.Output != 2 {
		t.Errorf("usage %+v", u)
	}
	want = []drawgate.Cost{
		drawgate.Units(drawgate.UnitRequests, 1), drawgate.Units(UnitInputTokens, 10),
		drawgate.Units(UnitOutputTokens, 2),
	}
	if got := p.Settlement(c, held, u); !slices.Equal(got, want) {
		t.Errorf("settles %v, want %v", got, want)
	}

	header := http.Header{"X-Tokens": {"5000"}, "X-Tokens-Left": {"0"}, "X-Tokens-Back": {"20s"}}
	if got := p.Observed(header, now); len(got) != 1 || got[0].Limit != 5000 || !p.QuotaHeader("X-Tokens") {
		t.Errorf("reads %+v", got)
	}
	r := p.Refusal(http.StatusTooManyRequests, header, []byte(`{"error":{"type":"fast"}}`), now)
	if r.Meaning != PerMinute || r.Unit != UnitInputTokens || !r.ReopenAt.Equal(now.Add(20*time.Second)) ||
		!p.Concerns(c, &r) {
		t.Errorf("refusal %+v", r)
	}
	if r = p.Refusal(http.StatusTooManyRequests, nil, []byte(`{"error":{"type":"daily"}}`), now); r.Meaning != PerDay {
		t.Errorf("refusal of a day: %+v", r)
	}
	if e := p.Error(RateLimited, "full", time.Second); !strings.Contains(string(e.Body), "rate_limit_exceeded") {
		t.Errorf("answers %s", e.Body)
	}
	if openAI.cacheApart || openAI.name != "openai" || strings.Contains(openAIKnown.free["request"], "invented") {
		t.Error("the provider that it is like has changed")
	}
}

// TestWhatIsNotInherited: what one provider alone has is not that of another one that is like it,
// such as the pools that its quotas leave out.
func TestWhatIsNotInherited(t *testing.T) {
	t.Parallel()
	for _, v := range providers {
		other := v.like("other", "https://other.test", v.profile, func(*provider) {})
		if other.private != nil || other.accountHeaders != nil || other.account != nil || other.searches != nil ||
			other.dearer != nil || other.plain != nil || other.otherPool != nil || other.lastEvents != nil ||
			other.quotaHeaders != nil || other.sdkPath != nil || other.url == v.url {
			t.Errorf("a provider that is like %s has what is its own", v.name)
		}
	}
}

// TestCountedAtStart: OpenAI counts max_tokens when a call starts, whatever it uses. A provider
// that has no such rule counts what was used.
func TestCountedAtStart(t *testing.T) {
	t.Parallel()
	plain := openAI.like("plain", "https://plain.test", openAIProfile, func(v *provider) { v.atStart = nil })
	for v, want := range map[*provider]int64{openAI: 5000, plain: 12} {
		p := v.newProfile()
		c, err := p.Parse(http.MethodPost, "/v1/chat/completions", nil,
			[]byte(`{"model":"gpt-4o","max_tokens":5000,"messages":[{"role":"user","content":"Hello, world!"}]}`))
		if err != nil {
			t.Fatal(err)
		}
		used := Usage{Input: 10, InputKnown: true, Output: 2, OutputKnown: true, Final: true, Ended: true}
		if got := p.Settlement(c, p.Upper(c), used); got[1] != drawgate.Units(UnitTokens, want) {
			t.Errorf("%s: settled with %v, want %d tokens", v.name, got, want)
		}
	}
}

// TestProvidersAreWhole: every provider that is listed has all that is needed to ask it.
func TestProvidersAreWhole(t *testing.T) {
	t.Parallel()
	for _, v := range providers {
		if v.url == "" || len(v.bases) == 0 || v.calls == nil || len(v.paths.calls) == 0 || v.known == nil ||
			v.refusal == nil || v.errorBody == nil {
			t.Errorf("%s lacks something", v.name)
		}
		for kind, e := range v.errors {
			if e.status == 0 || e.kind == "" {
				t.Errorf("%s has no words for the error %d", v.name, kind)
			}
		}
		for _, call := range v.paths.calls {
			path := strings.NewReplacer("{:}", "x", "{}", "x").Replace(call)
			if op, _, _ := v.calls.route(path); op == OpOther {
				t.Errorf("%s documents %s, which is no call that it knows", v.name, call)
			}
		}
		if p, ok := ByName(v.name); !ok || p.Name != v.name || Address(v.name) != v.url {
			t.Errorf("%s is not found by its name", v.name)
		}
	}
}

// TestProvidersAreListed: what lists the providers for people has all of them.
func TestProvidersAreListed(t *testing.T) {
	t.Parallel()
	for _, place := range []struct{ file, form string }{
		{"config/schema.json", `"%s"`}, // by go generate ./config
		{"docs/configuration.md", "`%s`"},
		{"docs/providers.md", "`%s`"},
		{"docs/gateway.md", "`%s`"},
		{"docs/gateway.md", "| %s |"},
		{"docs/simulator.md", "| %s |"},
		{"llm/simulator/%s.go", `"%s"`},
	} {
		for _, v := range providers {
			name := filepath.Join("..", strings.ReplaceAll(place.file, "%s", v.name))
			text, err := os.ReadFile(name)
			want := strings.ReplaceAll(place.form, "%s", v.name)
			if err != nil || !strings.Contains(strings.ToLower(string(text)), want) {
				t.Errorf("%s does not have %s (%v)", name, want, err)
			}
		}
	}
}

// named are the places outside of the providers' own files in which a provider is named, and why.
var named = map[string]string{
	"gateway/exchange.go:as in":      "an example in a message",
	"gateway/header.go:Helicone-Ope": "a header of a proxy",
}

// TestOnlyProvidersFilesNameThem: whatever depends on the provider is in its file. The others ask
// its value: no identifier, no text and so no switch of theirs has a provider's name.
func TestOnlyProvidersFilesNameThem(t *testing.T) {
	t.Parallel()
	own := []string{"provider.go", "generic.go"} // the list, and the provider that is like OpenAI
	isOwn := func(name string) bool {
		return slices.Contains(own, name) ||
			slices.ContainsFunc(providers, func(v *provider) bool { return strings.HasPrefix(name, v.name) })
	}
	used := map[string]bool{}
	checked := 0
	for _, dir := range []string{"llm", "outbound", "gateway", "config"} {
		files, err := filepath.Glob(filepath.Join("..", dir, "*.go"))
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			if strings.HasSuffix(file, "_test.go") || dir == "llm" && isOwn(filepath.Base(file)) {
				continue
			}
			checked++
			for _, text := range textsOf(t, file) {
				names := func(v *provider) bool { return strings.Contains(strings.ToLower(text), v.name) }
				if !slices.ContainsFunc(providers, names) {
					continue
				}
				// its presets and variables are named after them
				if dir == "config" && !slices.Contains(Names(), text) {
					continue
				}
				if why := exception(file, text); why != "" {
					used[why] = true
					continue
				}
				t.Errorf("%s has %q: move what depends on a provider to its file in llm", file, text)
			}
		}
	}
	if checked < 40 {
		t.Errorf("%d files were looked at", checked)
	}
	for what := range named {
		if !used[what] {
			t.Errorf("nothing needs the exception %q", what)
		}
	}
}

// exception returns the key in named of a text of a file; "" if there is none.
func exception(file, text string) string {
	for key := range named {
		name, part, _ := strings.Cut(key, ":")
		if strings.HasSuffix(filepath.ToSlash(file), name) && strings.Contains(text, part) {
			return key
		}
	}
	return ""
}

// textsOf returns the identifiers and the texts in a file, without comments and imports.
func textsOf(t *testing.T, file string) (texts []string) {
	t.Helper()
	f, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	ast.Inspect(f, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.ImportSpec:
			return false
		case *ast.Ident:
			texts = append(texts, n.Name)
		case *ast.BasicLit:
			if n.Kind == token.STRING {
				if text, err := strconv.Unquote(n.Value); err == nil {
					texts = append(texts, text)
				}
			}
		}
		return true
	})
	return texts
}
