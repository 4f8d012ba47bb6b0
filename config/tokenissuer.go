package config

import (
	"fmt"
	"net"
	"net/url"
	"strconv"
	"strings"
)

// TokenIssuer says which signed tokens (JWT) are keys of the gateway as well, and what such a key
// may do.
type TokenIssuer struct {
	Issuer     string   // the claim iss: an https URL
	Name       string   // what the names of its keys begin with; "" means Issuer
	Audiences  []string // the claim aud has one of them
	Algorithms []string // of tokenAlgorithms
	KeysURL    string   // where its keys are (JWKS); "" means that its OpenID configuration says it

	KeyClaim, TeamClaim, UserClaim string // claims; "" means sub, Team and User

	Key VirtualKey // what each key is but for the claims; without a name, a secret and an end
}

// tokenAlgorithms are those that the gateway can check with a public key.
var tokenAlgorithms = []string{
	"RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA",
}

// nameEnd separates the name of an issuer from what its token says, in the name of a key.
const nameEnd = "#"

const (
	maxTokenIssuers = 20
	maxAudiences    = 20
	maxIssuer       = 256 // bytes of its URL
)

// prefix is what the names of an issuer's keys begin with.
func (t *TokenIssuer) prefix() string {
	if t.Name != "" {
		return t.Name + nameEnd
	}
	return t.Issuer + nameEnd
}

// tokenSetting is the name of the settings of an issuer.
func tokenSetting(i int) string { return "gateway.tokens[" + strconv.Itoa(i) + "]" }

func (d *decoder) tokenIssuers(e entry) []TokenIssuer {
	type place struct{ entry, line int }
	first := map[string]place{}
	return manyBy(tokenIssuerSection, maxTokenIssuers, func(d *decoder, e entry, i int) (t TokenIssuer) {
		s := *tokenIssuerSection
		s.noted = tokenSetting(i)
		d.origin(s.noted, e.at)
		s.read(d, e, &t)
		for _, name := range []string{t.Issuer, strings.TrimSuffix(t.prefix(), nameEnd)} {
			if other, twice := first[name]; twice && name != "" && other.entry != i {
				d.problem(e.at, fmt.Sprintf("the first one is on line %d", other.line),
					"two issuers of tokens are called %s", shorten(name))
			}
			first[name] = place{i, e.at.Line}
		}
		return t
	}).read(d, e)
}

var tokenIssuerSection = &section[TokenIssuer]{
	name: "tokenIssuer", what: "an issuer of tokens", settings: (*TokenIssuer).settings,
	lacks: "an issuer of tokens needs KEY",
	hint:  "such as {issuer: https://login.example.com, audience: drawgate, algorithms: [RS256]}",
	check: func(d *decoder, e entry, t *TokenIssuer, seen map[string]bool, _ bool) {
		for _, name := range []string{"team", "user"} {
			if seen[name] && seen[name+"_claim"] {
				d.problem(spanOf(e.value), "leave one of them out", "an issuer of tokens has both %s and %[1]s_claim", name)
			}
		}
	},
}

var (
	asIssuer   = textBy((*decoder).issuerURL, httpURL.with(schema{"maxLength": maxIssuer}))
	asNamePart = textBy((*decoder).namePart, schema{"maxLength": maxName, "pattern": "^[A-Za-z0-9_-]+$"})
)

func (t *TokenIssuer) settings() []setting {
	k := &t.Key
	of := map[string]setting{}
	for _, s := range k.settings() {
		of[s.key] = s
	}
	return append([]setting{
		{"issuer", asIssuer.to(&t.Issuer), required, "the claim `iss` of its tokens: an `https` URL, or `http` on this " +
			"machine"},
		{"name", asNamePart.to(&t.Name), "the issuer's URL", "what the names of its keys begin with: with `corp` the " +
			"token of alice is the key `corp#alice`. No key of the file may have such a name"},
		{"audience", oneOrMore(asShort, maxAudiences).to(&t.Audiences), required, "what the issuer calls this gateway: the " +
			"claim `aud` must have it, or one of these"},
		{
			"algorithms", once(oneOrMore(words(tokenAlgorithms...), len(tokenAlgorithms))).to(&t.Algorithms), required,
			"those with which a token may be signed",
		},
		{"keys_url", asIssuer.to(&t.KeysURL), "`ISSUER/.well-known/openid-configuration` says it", "where it publishes " +
			"its keys (JWKS)"},
		{"key_claim", asShort.to(&t.KeyClaim), "`sub`", "the claim that names the key, within the issuer. A claim that " +
			"names something is a text of at most 256 bytes; a token without it is refused"},
		{"team_claim", asShort.to(&t.TeamClaim), "none: `team` says it", "the claim that names the team. It may be a team of keys of " +
			"the file"},
		{"user_claim", asShort.to(&t.UserClaim), "none: `user` says it", "the claim that names the user"},
	}, of["team"], of["user"], of["class"], of["priority"], of["models"], of["others"], of["paths"], of["addresses"],
		of["disabled"])
}

// namePart reads what the names of keys begin with.
func (d *decoder) namePart(e entry) string {
	text, ok := d.text(e)
	if ok && (len(text) > maxName || strings.Trim(text, upstreamChars) != "") {
		d.problem(spanOf(e.value), "such as corp", "%s %s is not made of at most %d letters, digits, - and _", e.key,
			shorten(text), maxName)
	}
	return text
}

// issuerURL reads the URL of an issuer of tokens, or of its keys.
func (d *decoder) issuerURL(e entry) string {
	text, ok := d.text(e)
	u, err := url.Parse(text)
	switch {
	case !ok:
	case err != nil || !isPlainURL(text) || strings.ContainsAny(text, "?#"):
		d.hideValue(e.value)
		d.problem(spanOf(e.value), "such as https://login.example.com", "%s is not an https URL without user, query and fragment",
			e.key)
	case len(text) > maxIssuer:
		d.problem(spanOf(e.value), "", "%s has %d bytes, more than %d", e.key, len(text), maxIssuer)
	case u.Scheme == "http" && !onLoopback(net.JoinHostPort(u.Hostname(), "0")):
		d.problem(spanOf(e.value), "use https", "%s is an http URL of another machine: its answers could be anybody's", e.key)
	}
	return text
}

// checkTokens checks what the issuers of tokens have to do with keys.
func (c *Config) checkTokens() (problems Problems) {
	g := &c.Gateway
	for i := range g.Tokens {
		for k := range g.Keys {
			if name := g.Keys[k].Name; strings.HasPrefix(name, g.Tokens[i].prefix()) {
				problems = append(problems, c.note(keySetting(k)+".name",
					fmt.Sprintf("the name of key %s is one of a token of %s", shorten(name), shorten(g.Tokens[i].Issuer)),
					"give the key another name"))
			}
		}
	}
	return problems
}
