package config

import (
	"fmt"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/goccy/go-yaml/ast"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/llm"
)

// Bounds of the gateway's settings.
const (
	maxUpstreams = 100
	maxModels    = 1000
	maxKeys      = 100_000
	maxAliases   = 1000
	maxWeight    = 1000
	maxFallbacks = 8
	maxRetries   = 10
	maxRequest   = 1 << 30
	maxCache     = 1 << 40
	maxTries     = 1000
)

// Gateway configures the reverse proxy in front of LLM providers. Without upstreams there is none.
type Gateway struct {
	Listen  string        // host:port, or "" for the default, on loopback
	TLS     TLS           // ClientCA: callers need a certificate, and a key
	MaxBody int64         // largest request in bytes; 0 means 32 MiB
	Bodies  int64         // bytes of all requests whose answers have not begun; 0 means 1 GiB
	MaxWait time.Duration // longest wait in the queue; 0 means 90s
	Drain   time.Duration // how long running answers may take when the process stops; 0 means 30s
	Cache   int64         // bytes of answers that are kept; 0 means 64 MiB
	Ledger  Ledger
	Spend   Spend

	Upstreams []Upstream // in the order of the file; names are unique
	Aliases   []Alias    // as Upstreams
	Keys      []VirtualKey
	KeysIn    bool          // keys are also in the store, where administrators change them
	Tokens    []TokenIssuer // whose signed tokens are keys as well
	Prices    Prices
	Incidents Incidents
}

// Spend says how it is counted what calls spend.
type Spend struct {
	Off  bool
	Zone string // of its days; "" means UTC
}

// Location returns the zone of the days.
func (s *Spend) Location() *time.Location {
	at, err := time.LoadLocation(s.Zone)
	if err != nil { // it was read once
		return time.UTC
	}
	return at
}

// Money returns the unit of costs, such as usd_micros; "" if there are no prices.
func (g *Gateway) Money() string {
	if prices := g.Prices.Table(); prices != nil {
		return prices.Unit()
	}
	return ""
}

// Ledger says where calls are written down, for drawgate audit. Without a Dir they are not.
type Ledger struct {
	Dir string // a folder
}

// Upstream is one account of a provider.
type Upstream struct {
	Name      string      // the first segment of callers' paths
	Profile   string      // of package llm, or "generic"
	Generic   llm.Generic // describes the provider of the profile "generic"
	URL       string      // of the API
	APIKey    Secret      // the provider's key; empty: none is sent
	KeyHeader string      // the header that carries it; "" means the provider's own
	Owner     string      // the key of the policies' buckets; "" means Name
	Models    []Model
	Likely    bool // estimates are what is likely, not what is possible
	Breaker   Breaker
	Retries   int
	Hold      time.Duration // 0 means 30s
	Others    []string      // paths of what is passed on though nothing counts it, exact or with a * at the end
	Stored    Stored
	Silence   time.Duration // 0 means 10m
	Duration  time.Duration // 0 means 1h

	// how long no call is made after the provider's credit was exhausted; 0 means the profile's
	CreditPause time.Duration
}

// Stored says who may use what calls have stored at an upstream. Without a By nobody may.
type Stored struct {
	By     string // StoredByKey or StoredByTeam
	Policy string // counts the calls that name no model
}

// Who may use what a call has stored.
const (
	StoredByKey  = "key"
	StoredByTeam = "team"
)

// Breaker says when calls to an upstream that fails are stopped. The zero value is the default.
type Breaker struct {
	Off       bool
	Failures  int           // by which they outnumber successes; 0 means 5
	Open      time.Duration // 0 means 60s
	Successes int           // 0 means 2
}

// Model says how calls of some models are counted, and what may take their place.
type Model struct {
	Model     string // exact, or "prefix*"
	Policy    string
	Fallbacks []string
	Cache     AnswerCache
}

// AnswerCache says which answers are kept. A TTL of 0 keeps none.
type AnswerCache struct {
	TTL, Stale time.Duration
	Shared     bool
}

var gatewaySection = &section[Gateway]{
	name: "gateway", what: "gateway", noted: "gateway", settings: (*Gateway).settings,
	more: schema{"anyOf": need("keys", "tokens", "keys_in_store")},
	check: func(d *decoder, e entry, _ *Gateway, seen map[string]bool, wrong bool) {
		if !seen["upstreams"] && !wrong {
			d.missing(e.at, "such as upstreams: {openai: {api_key_env: OPENAI_API_KEY, "+
				"models: [{model: \"*\", policy: openai}]}}", "gateway has no upstreams")
		}
		if !seen["keys"] && !seen["tokens"] && !seen["keys_in_store"] && !wrong {
			d.missing(e.at, "such as keys: [{name: alice, secret_env: ALICE_KEY}]",
				"gateway has no keys: nobody could use it")
		}
	},
}

func (g *Gateway) settings() []setting {
	keys := many(virtualKeySection, maxKeys)
	keys.read = (*decoder).virtualKeys
	tokens := readBy(many(tokenIssuerSection, maxTokenIssuers), (*decoder).tokenIssuers)
	return []setting{
		{"listen", asAddress.to(&g.Listen), "`127.0.0.1:7881`", "`host:port`; port 0 chooses one; `off` for none"},
		{"tls", tlsSection.to(&g.TLS), none, "`cert`, `key` and `client_ca`, as of the server. With `client_ca` " +
			"callers need a certificate, and a virtual key"},
		{"max_body", number[int64](1, maxRequest).to(&g.MaxBody), "32 MiB", "largest request in bytes"},
		{"max_bodies", number[int64](1, maxCache).to(&g.Bodies), "1 GiB", "memory for all requests whose answers " +
			"have not begun, in bytes, beyond which more are refused with 503; at least `max_body`. One team, or key " +
			"without a team, may have half of it (but always one request) if there are several. " +
			"[More](gateway.md#memory)"},
		{"max_wait", between(time.Millisecond, maxStep).to(&g.MaxWait), "90s", "longest wait in the queue. " +
			"`wait.up_to` of a policy and the header `Drawgate-Timeout` of a caller can shorten it"},
		{"drain", between(time.Millisecond, maxStep).to(&g.Drain), "30s", "how long running answers may take when " +
			"the process stops. What is left is cut off, and a stream then ends with an error event. " +
			"[More](operations.md#a-systemd-unit)"},
		{"cache", number[int64](1, maxCache).to(&g.Cache), "64 MiB", "bytes of answers that are kept, of all models " +
			"that have a cache"},
		{"ledger", ledgerSection.to(&g.Ledger), "nothing is written", "where calls are written down, for [`drawgate " +
			"audit`](audit.md)"},
		{"spend", spendSection.to(&g.Spend), "", "how it is counted what calls [spend](spend.md)"},
		{"upstreams", g.upstreams(), required, "accounts of providers, by name: the first segment of callers' paths, " +
			"as in `http://gateway:7881/openai/v1`"},
		{"aliases", g.aliases(), none, "[names by which callers ask for a model](gateway.md#aliases), or for " +
			"the same model at [several accounts](gateway.md#several-accounts): `{fast: openai/gpt-4.1-mini}`. A name has 1 to 128 letters, digits, `-`, `.` or `_`"},
		{"keys", keys.to(&g.Keys), "required without `tokens` or `keys_in_store`", "virtual keys, which callers show in " +
			"place of the provider's"},
		{"keys_in_store", asFlag.to(&g.KeysIn), no, "`true` keeps keys in the store as well, where [administrators " +
			"change them](gateway.md#keys-in-the-store) while gateways run: on SQLite, Redis, PostgreSQL or DynamoDB"},
		{"tokens", tokens.to(&g.Tokens), none, "issuers whose [signed tokens](gateway.md#tokens) (JWT, OpenID Connect) " +
			"are virtual keys as well"},
		{"prices", priceSection.to(&g.Prices), "", "what models cost, for budgets in money"},
		{"incidents", incidentSection.to(&g.Incidents), "", "what is kept of [calls that an upstream refused " +
			"although the limits had allowed them](gateway.md#incidents)"},
	}
}

var spendSection = &section[Spend]{name: "spend", what: "spend", settings: (*Spend).settings}

func (s *Spend) settings() []setting {
	return []setting{
		{"enabled", asOff.to(&s.Off), yes, "`false` counts nothing any more; what was counted stays"},
		{"zone", textBy((*decoder).zone, nil).to(&s.Zone), "`UTC`", "of its days: a name of the IANA time zone " +
			"database"},
	}
}

var ledgerSection = &section[Ledger]{
	name: "callLedger", what: "ledger", settings: (*Ledger).settings,
	lacks: "ledger needs dir: the folder in which calls are written down",
	hint:  "such as {dir: /var/lib/drawgate/ledger}",
}

func (l *Ledger) settings() []setting {
	return []setting{{
		"dir", asText.to(&l.Dir), required,
		"a folder in which each gateway writes down what it reserved and what calls used. Several gateways can " +
			"share it",
	}}
}

func upstreamSetting(name string) string { return "gateway.upstreams." + name }

// upstreams returns the value of the upstreams.
func (g *Gateway) upstreams() value {
	return value{
		read: func(d *decoder, e entry) {
			entries, ok := d.entries(e.value, e.key)
			if ok && (len(entries) == 0 || len(entries) > maxUpstreams) {
				d.missing(spanOf(e.value), "", "upstreams has %d entries, not 1 to %d", len(entries), maxUpstreams)
			}
			for _, e := range entries {
				g.Upstreams = append(g.Upstreams, d.upstream(e))
				d.origin(upstreamSetting(e.key), e.at)
			}
		},
		node: func() (n node) {
			for i := range g.Upstreams {
				u := &g.Upstreams[i]
				n.pairs = append(n.pairs, pair{quote(u.Name), settingsNode(u.settings())})
			}
			return n
		},
		schema: mapOf(define("upstream", nil, func() []setting { return new(Upstream).settings() })).
			with(schema{"maxProperties": maxUpstreams}),
		bounds: fmt.Sprintf("1 to %d", maxUpstreams),
	}
}

var profiles = append(llm.Names(), profileGeneric)

// profileNames lists the providers that have a profile, in Markdown.
func profileNames() string {
	names := llm.Names()
	last := len(names) - 1
	return "`" + strings.Join(names[:last], "`, `") + "` or `" + names[last] + "`"
}

func (d *decoder) upstream(e entry) (u Upstream) {
	u.Name = e.key
	if u.Name == "" || len(u.Name) > maxName || strings.Trim(u.Name, upstreamChars) != "" {
		d.problem(e.at, "such as openai",
			"the name of an upstream is the first segment of callers' paths: letters, digits, - and _")
	}
	before := len(d.problems)
	seen := d.object(e.value, "upstream "+shorten(u.Name), u.settings(), d.noted(upstreamSetting(u.Name)))
	wrong := len(d.problems) > before
	if !seen["profile"] {
		if u.Profile = u.Name; !slices.Contains(profiles, u.Profile) && !wrong {
			d.missing(e.at, "give it one of "+strings.Join(profiles, ", "),
				"upstream %s has no profile, and its name is not a provider's", shorten(u.Name))
		}
	}
	if !seen["url"] {
		u.URL = llm.Address(u.Profile)
	}
	if !seen["models"] && !wrong {
		d.missing(e.at, `such as models: [{model: "*", policy: openai}]`,
			"upstream %s has no models: every call would be refused", shorten(u.Name))
	}
	if !wrong {
		d.checkGeneric(e, &u, seen["generic"])
	}
	if u.APIKey.Env != "" && u.APIKey.File != "" {
		d.problem(e.at, "leave one of them out", "upstream %s has both api_key_env and api_key_file", shorten(u.Name))
	}
	return u
}

const upstreamChars = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_"

func (u *Upstream) settings() []setting {
	link := textBy((*decoder).apiURL, httpURL)
	link.node = func(url string) (n node) {
		if url != llm.Address(u.Profile) {
			n = textNode(url)
		}
		return n
	}
	models := bounded(manyBy(modelSection, maxModels, func(d *decoder, e entry, i int) (m Model) {
		s := *modelSection
		s.noted = modelSetting(u.Name, i)
		s.read(d, e, &m)
		return m
	}), fmt.Sprintf("1 to %d", maxModels))
	others := bounded(readBy(oneOrMore(asPattern, maxModels), (*decoder).others), fmt.Sprintf("at most %d", maxModels))
	return append([]setting{
		{"profile", words(profiles...).to(&u.Profile), "the upstream's name", "what the provider counts, and how it " +
			"says so: " + profileNames() + ", also of what speaks the same protocol; `generic` is described by the " +
			"section `generic`"},
		{"url", link.to(&u.URL), "the provider's", "of the API"},
		{"key_header", asHeader.to(&u.KeyHeader), "the provider's own", "the header that carries the provider's key, " +
			"such as `api-key` for Azure"},
		{"owner", asShort.to(&u.Owner), "the upstream's name", "whose quota it is, such as a project: the key of the " +
			"policies' buckets. Upstreams with the same owner and policy share a quota"},
		{"models", models.to(&u.Models), required, "how calls are counted. A model's own entry decides, wherever it " +
			"stands; otherwise the first that fits, or an earlier one that names another version of the model, such " +
			"as `gpt-4.1` for `gpt-4.1-2025-04-14`: providers count versions together. A call that fits none is refused"},
		{"estimate", either("upper", "likely").to(&u.Likely), "`upper`", "what a call reserves: the most that it can " +
			"use (`upper`: never too little, except for [tools that the provider runs](providers.md#estimates), and " +
			"much comes back), or what it will likely use, learned from answers (`likely`)"},
		{"breaker", breakerSection.to(&u.Breaker), "", "when calls of a model, or all connections, are stopped. The " +
			"failures of one key or team stop that one only: see [circuits](outbound.md#circuits)"},
		{"retries", number[int](0, maxRetries).to(&u.Retries), "0", "how often a call that failed, or was refused " +
			"for the quota, is made again. Each attempt counts"},
		{"hold", between(time.Second, time.Hour).to(&u.Hold), "30s", "how long units stay held if this process dies"},
		{"others", others.to(&u.Others), none, "paths behind `url` that are [passed on though no quota counts " +
			"them](gateway.md#callers), exact or with `*` at the end: `[/v1/files, \"/v1/files/*\"]`. Otherwise only " +
			"lists of models and counts of tokens"},
		{"stored", storedSection.to(&u.Stored), "calls for what is stored are refused", "who may use [what calls have " +
			"stored](gateway.md#stored-responses-and-files), such as responses and files"},
		{"silence", between(time.Second, maxStep).to(&u.Silence), "10m", "longest time without anything from the " +
			"provider"},
		{"duration", between(time.Second, maxStep).to(&u.Duration), "1h", "longest time of a whole answer"},
		{"credit_pause", between(time.Second, maxStep).to(&u.CreditPause), "5m", "how long no call is made after the " +
			"provider said that the credit is used up; then one asks whether somebody has paid"},
		{
			"generic", genericSection.to(&u.Generic), "only with `profile: generic`, which needs it",
			"where a provider's requests and answers have what counts ([an example](gateway.md#other-providers))",
		},
	}, u.APIKey.settings("api_key", "none is sent",
		"the provider's key, of at least 16 bytes. It never reaches callers")...)
}

// others reads paths that are passed on uncounted.
func (d *decoder) others(e entry) []string {
	if _, ok := e.value.(*ast.BoolNode); ok {
		d.problem(spanOf(e.value), `such as others: [/v1/files, "/v1/files/*"]`,
			"others is a list of paths that are passed on though nothing counts them")
		return nil
	}
	return oneOrMore(asPattern, maxModels).read(d, e)
}

// apiURL reads the URL of an API. It is shown, so it must not have a secret.
func (d *decoder) apiURL(e entry) string {
	text, ok := d.text(e)
	if ok && !isPlainURL(text) {
		d.hideValue(e.value)
		d.problem(spanOf(e.value), "such as https://api.openai.com; the key has a setting of its own",
			"url is not an http or https URL without user, query and fragment")
	}
	return text
}

// isPlainURL reports whether a text is an http or https URL that has no place for a secret.
func isPlainURL(text string) bool {
	u, err := url.Parse(text)
	return err == nil && u.Host != "" && (u.Scheme == "https" || u.Scheme == "http") && u.User == nil &&
		u.RawQuery == "" && u.Fragment == ""
}

var breakerSection = &section[Breaker]{name: "circuit", what: "breaker", settings: (*Breaker).settings}

func (b *Breaker) settings() []setting {
	return []setting{
		{"enabled", asOff.to(&b.Off), yes, "`false` never stops calls"},
		{"failures", number[int](1, maxTries).to(&b.Failures), "5", "calls are stopped when failures outnumber " +
			"successes by so many: after five in a row, for example"},
		{"open", between(time.Millisecond, maxStep).to(&b.Open), "60s", "how long they are stopped. Then one at a " +
			"time may try"},
		{"successes", number[int](1, maxTries).to(&b.Successes), "2", "how many in a row it takes until all may pass " +
			"again"},
	}
}

var modelSection = &section[Model]{
	name: "model", what: "a model", settings: (*Model).settings,
	lacks: "a model needs model, its name, and policy, which counts it",
	hint:  `such as {model: "gpt-4.1*", policy: gpt}`,
}

func modelSetting(upstream string, i int) string {
	return upstreamSetting(upstream) + ".models[" + strconv.Itoa(i) + "]"
}

func (m *Model) settings() []setting {
	return []setting{
		{"model", asPattern.to(&m.Model), required, "its name, or `prefix*`; `*` for any"},
		{"policy", asText.to(&m.Policy), required, "the policy that counts its calls, under the upstream's owner. " +
			"All models that share a quota at the provider need the same one"},
		{"fallbacks", oneOrMore(asShort, maxFallbacks).to(&m.Fallbacks), none, "models that are tried in this order " +
			"while the quota is exhausted, each counted by its own entry. `UPSTREAM/MODEL` is a model of another " +
			"upstream with the same profile (of `generic` ones: the same description); a name whose first segment is " +
			"no upstream's is a model of this one, slashes included"},
		{"cache", cacheSection.to(&m.Cache), none, "which answers are kept, and given again to a call that is the " +
			"same byte for byte"},
	}
}

var storedSection = &section[Stored]{
	name: "stored", what: "stored", settings: (*Stored).settings,
	lacks: "stored needs by, whose that is, and policy, which counts its calls",
	hint:  "such as {by: key, policy: gpt}",
}

func (s *Stored) settings() []setting {
	return []setting{
		{"by", words(StoredByKey, StoredByTeam).to(&s.By), required, "whose it is: of the `key` that made the call, or of " +
			"all keys of its `team`. What was stored before the other one was chosen is nobody's"},
		{"policy", asText.to(&s.Policy), required, "the policy that counts these calls, under the upstream's owner: as " +
			"`requests`, and uploads as `bytes`"},
	}
}

var cacheSection = &section[AnswerCache]{
	name: "answerCache", what: "cache", settings: (*AnswerCache).settings,
	lacks: "cache needs ttl: how long an answer is given again",
	hint:  "such as {ttl: 10m, stale: 1h}",
}

func (a *AnswerCache) settings() []setting {
	return []setting{
		{"ttl", between(time.Millisecond, maxAge).to(&a.TTL), required, "how long an answer is given again"},
		{"stale", between(0, maxAge).to(&a.Stale), "0", "how much longer, while the quota is exhausted"},
		{"shared", asFlag.to(&a.Shared), no, "also between callers with different keys"},
	}
}

// maxAge is the longest time for which an answer is kept.
const maxAge = 30 * 24 * time.Hour

// model returns how calls of a model are counted, or nil: see [llm.Profile.Entry].
func (u *Upstream) model(name string) *Model {
	p, err := u.Provider()
	if err != nil {
		p = &llm.Profile{} // it is reported
	}
	at := p.Entry(name, len(u.Models), func(i int) string { return u.Models[i].Model })
	if at < 0 {
		return nil
	}
	return &u.Models[at]
}

// fits reports whether a name is that of a pattern.
func fits(pattern, name string) bool {
	if prefix, ok := strings.CutSuffix(pattern, "*"); ok {
		return strings.HasPrefix(name, prefix)
	}
	return pattern == name
}

// checkGateway checks what the gateway's settings name elsewhere.
func (c *Config) checkGateway(policies []string) (problems Problems) {
	g := &c.Gateway
	var names []string
	for i := range g.Upstreams {
		u := &g.Upstreams[i]
		names = append(names, u.Name)
		if p := u.Stored.Policy; p != "" && !slices.Contains(policies, p) && !c.partial {
			problems = append(problems, c.note(upstreamSetting(u.Name)+".stored", "unknown policy "+shorten(p),
				someOf(p, policies)))
		}
		for k := range u.Models {
			m := &u.Models[k]
			if !slices.Contains(policies, m.Policy) && m.Policy != "" && !c.partial {
				problems = append(problems, c.note(modelSetting(u.Name, k)+".policy",
					"unknown policy "+shorten(m.Policy), someOf(m.Policy, policies)))
			}
			for _, f := range m.Fallbacks {
				if text, hint := g.checkFallback(u, f); text != "" {
					problems = append(problems, c.note(modelSetting(u.Name, k)+".fallbacks", text, hint))
				}
			}
		}
	}
	for i := range g.Upstreams {
		u := &g.Upstreams[i]
		p, err := u.Provider()
		if err != nil {
			continue // it was reported
		}
		if u.Stored.By != "" && !p.KeepsStored() {
			problems = append(problems, c.note(upstreamSetting(u.Name)+".stored",
				"no calls for what is stored are known of the profile "+u.Profile, "leave stored out"))
		}
		for _, other := range u.Others {
			if err := p.CheckOther(other); err != nil {
				problems = append(problems, c.note(upstreamSetting(u.Name)+".others", err.Error(),
					"write paths that begin with /, behind the url"))
			}
		}
	}
	problems = append(problems, c.checkAliases()...)
	for i := range g.Keys {
		problems = append(problems, c.checkKey("key "+shorten(g.Keys[i].Name), keySetting(i), &g.Keys[i], names)...)
	}
	for i := range g.Tokens {
		t := &g.Tokens[i]
		problems = append(problems, c.checkKey("a token of "+shorten(t.Issuer), tokenSetting(i), &t.Key, names)...)
	}
	problems = append(problems, c.checkKeysInStore()...)
	return append(problems, c.checkTokens()...)
}

// checkKey checks what a key may use. who is the key, at a setting; names are those of the
// upstreams.
func (c *Config) checkKey(who, at string, k *VirtualKey, names []string) (problems Problems) {
	g := &c.Gateway
	calls := func(setting string, patterns []string, such string) {
		for _, p := range patterns {
			if !slices.ContainsFunc(names, func(upstream string) bool { return isOf(p, upstream) }) {
				problems = append(problems, c.note(at+setting,
					fmt.Sprintf("%s may call %s, which is of no upstream", who, shorten(p)),
					"write UPSTREAM/PATH, such as "+example(names)+such))
			}
		}
	}
	calls(".others", k.Others, "/v1/files/*")
	calls(".paths", k.Paths, "/v1/chat/completions")
	hint := "write UPSTREAM/MODEL, such as " + example(names) + "/*"
	if len(g.Aliases) > 0 {
		hint += ", or the name of an alias"
	}
	for _, m := range k.Models {
		known := slices.ContainsFunc(names, func(upstream string) bool { return isOf(m, upstream) })
		if !known && g.alias(m) == nil {
			problems = append(problems, c.note(at+".models",
				fmt.Sprintf("%s may use %s, which is of no upstream", who, shorten(m)), hint))
		}
	}
	return problems
}

// isOf reports whether a model that a key may use, as the key names it, can be one of an upstream.
func isOf(pattern, upstream string) bool {
	name, _, ok := strings.Cut(pattern, "/")
	return ok && name == upstream || !ok && strings.HasSuffix(pattern, "*") && fits(pattern, upstream)
}

// fallback returns the upstream and the model that a fallback of an upstream means.
func (g *Gateway) fallback(u *Upstream, name string) (to *Upstream, model string) {
	if first, rest, ok := strings.Cut(name, "/"); ok {
		if i := slices.IndexFunc(g.Upstreams, func(u Upstream) bool { return u.Name == first }); i >= 0 {
			return &g.Upstreams[i], rest
		}
	}
	return u, name
}

// doubtful returns what speaks against a name of a model that may be right, and a hint: it has no
// price, or nobody here knows it and only an entry for all models counts it. what is the name's
// purpose at an upstream, such as "the fallback".
func (g *Gateway) doubtful(u *Upstream, what, name string) (text, hint string) {
	to, model := g.fallback(u, name)
	entry := to.model(model)
	p, err := to.Provider()
	if entry == nil || err != nil {
		return "", "" // it was reported
	}
	if len(g.Prices.Models) > 0 {
		call := &llm.Call{Operation: llm.OpChat, Model: model, Family: p.Family(model).Name}
		if _, _, err := g.Prices.Table().Hold(call, llm.Estimate{}); err != nil {
			return fmt.Sprintf("%s %s has no price: its calls are refused", what, shorten(name)),
				"look at its spelling, or add it to gateway.prices.models"
		}
	}
	if entry.Model == "*" && to.URL == llm.Address(to.Profile) && len(p.Families) > 0 && !p.Knows(model) {
		return fmt.Sprintf("%s %s is no model of %s that is known here, and only the entry for all models counts it",
				what, shorten(name), shorten(to.Name)),
			"look at its spelling; if it is right, give it an entry of its own"
	}
	return "", ""
}

// checkFallback returns what is wrong with a fallback of an upstream's model, and a hint.
func (g *Gateway) checkFallback(u *Upstream, name string) (text, hint string) {
	to, model := g.fallback(u, name)
	switch {
	case g.likeAlias(name) != nil, g.likeAlias(model) != nil:
		return fmt.Sprintf("the fallback %s is an alias", shorten(name)), "name the model that it stands for"
	case model == "" || to.model(model) == nil:
		hint = "add it to the models, with its policy"
		if meant := g.meantFallback(name); meant != "" {
			hint = meant
		}
		return fmt.Sprintf("nothing counts the fallback %s: none of the models of upstream %s fits it", shorten(name),
			shorten(to.Name)), hint
	case !u.sameAPI(to):
		return fmt.Sprintf("the fallback %s is of an upstream with another profile: calls are not translated",
			shorten(name)), "choose an upstream of the same profile"
	}
	return "", ""
}

// meantFallback returns a hint if a fallback seems to name an upstream, but misspells it.
func (g *Gateway) meantFallback(name string) (hint string) {
	first, rest, ok := strings.Cut(name, "/")
	if !ok {
		return ""
	}
	var names []string
	for i := range g.Upstreams {
		names = append(names, g.Upstreams[i].Name)
	}
	if _, meant := didYouMean(first, names); meant != "" && meant != first {
		return fmt.Sprintf("did you mean %q?", meant+"/"+rest)
	}
	return ""
}

func example(names []string) string {
	if len(names) == 0 {
		return profiles[0]
	}
	return names[0]
}

// warnGateway warns about what works, but lets a quota be exceeded or refuses calls.
func (c *Config) warnGateway() {
	g := &c.Gateway
	if len(g.Upstreams) > 0 && g.Listen != "" && g.Listen != ListenOff && !onLoopback(g.Listen) && g.TLS.Cert == "" {
		c.warnOf("gateway.listen", "set gateway.tls, unless something in front of it does",
			"keys and prompts are sent to %s without TLS", g.Listen)
	}
	c.warnKeys()
	c.warnKeysInStore()
	c.warnAliases()
	warned := map[string]bool{}
	for i := range g.Upstreams {
		u := &g.Upstreams[i]
		if u.APIKey == (Secret{}) && !u.onThisMachine() {
			c.warnOf(upstreamSetting(u.Name), "name it with api_key_env or api_key_file",
				"calls to %s are made without a key", shorten(u.Name))
		}
		if all := func(m Model) bool { return m.Model == "*" }; len(u.Models) > 0 &&
			!slices.ContainsFunc(u.Models, all) {
			c.warnOf(upstreamSetting(u.Name)+".models", `end with {model: "*", policy: …} to count them`,
				"models of %s that fit none of these have no policy: calls of them are refused", shorten(u.Name))
		}
		for _, other := range u.Others {
			wide := []string{"", "/v1", "/v1beta", "/v1alpha", "/openai", "/openai/v1"}
			if path, all := strings.CutSuffix(other, "*"); all && slices.Contains(wide, strings.TrimRight(path, "/")) {
				c.warnOf(upstreamSetting(u.Name)+".others", "list what is needed, such as /v1/files/*",
					"others of %s has %s: nearly all calls of that account pass uncounted", shorten(u.Name),
					shorten(other))
			}
		}
		if p, err := u.Provider(); err == nil {
			c.warnModels(u, p)
		}
		if end := u.doubled(); end != "" {
			c.warnOf(upstreamSetting(u.Name)+".url", "leave "+end+" out of url",
				"the url of %s ends with %s, and the paths of SDKs begin with it: calls would go to …%s%[2]s/…",
				shorten(u.Name), end, end)
		}
		for k := range u.Models {
			m := &u.Models[k]
			for _, f := range m.Fallbacks {
				if hint := g.meantFallback(f); hint != "" {
					c.warnOf(modelSetting(u.Name, k)+".fallbacks", hint,
						"the fallback %s is a model of upstream %s itself: there is no upstream of that name",
						shorten(f), shorten(u.Name))
				} else if text, hint := g.doubtful(u, "the fallback", f); text != "" {
					c.warnOf(modelSetting(u.Name, k)+".fallbacks", hint, "%s", text)
				}
			}
			if p, ok := c.Policy(m.Policy); ok && !warned[m.Policy] {
				warned[m.Policy] = true
				c.warnQuota(&p, modelSetting(u.Name, k)+".policy")
				c.warnProvider(&p)
			}
			if _, known := g.Prices.Models[m.Model]; !known && len(g.Prices.Models) > 0 &&
				!strings.HasSuffix(m.Model, "*") {
				c.warnOf(modelSetting(u.Name, k)+".model",
					"add it to gateway.prices.models, unless its family is there",
					"model %s has no price of its own: without any its calls are refused", shorten(m.Model))
			}
		}
	}
}

// doubled returns the end of the upstream's url that the paths of SDKs have as well; "" if there is
// none.
func (u *Upstream) doubled() string {
	for _, end := range llm.Bases(u.Profile) {
		if strings.HasSuffix(strings.TrimRight(u.URL, "/"), end) {
			return end
		}
	}
	return ""
}

// onThisMachine reports whether calls stay on this machine, as those of a simulator or of a model
// that runs here: they rarely need a key.
func (u *Upstream) onThisMachine() bool {
	link, err := url.Parse(u.URL)
	return err == nil && onLoopback(net.JoinHostPort(link.Hostname(), "0"))
}

// warnQuota warns about a policy that stands for a provider's quota, and could let more through.
func (c *Config) warnQuota(p *drawgate.Policy, setting string) {
	if l := windowOf(p, func(l *drawgate.Limit) bool { return l.Margin == 0 }); l != nil {
		c.warnOf(setting, "give it margin: 2s",
			"limit %s of policy %s has no margin: a call that takes a while to reach the provider may count in a later window there",
			shorten(l.Name), shorten(p.Name))
	}
	if l := windowOf(p, func(l *drawgate.Limit) bool {
		return l.Unit == llm.UnitTokens &&
			l.Charge != drawgate.ChargeEnd
	}); l != nil {
		c.warnOf(setting, "give it charge: end",
			"limit %s of policy %s counts tokens from the start of a call: those of its answer may count there only when it ends",
			shorten(l.Name), shorten(p.Name))
	}
}

// windowOf returns the first limit of a window that is so, or nil.
func windowOf(p *drawgate.Policy, is func(*drawgate.Limit) bool) *drawgate.Limit {
	for i := range p.Limits {
		if l := &p.Limits[i]; (l.Kind == drawgate.Rolling || l.Kind == drawgate.Calendar) && is(l) {
			return l
		}
	}
	return nil
}
