package gateway

import (
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/go-jose/go-jose/v4"
)

// TokenIssuer says that signed tokens (JWT) of an issuer are keys as well, and what such a key may
// do. The name of the key is the issuer's, a # and what a claim says, such as corp#alice: no
// [Config.Keys] may be called so.
type TokenIssuer struct {
	Issuer string // what the claim iss says: an https URL, or an http URL on this machine
	Name   string // what the names of its keys begin with: letters, digits, - and _; "" means Issuer
	// Audiences are the names of this gateway at the issuer. The claim aud must have one of them.
	Audiences []string
	// Algorithms are those with which a token may be signed, of [TokenAlgorithms].
	Algorithms []string
	// KeysURL is where the issuer publishes its keys (JWKS), as Issuer an https URL; "" means that
	// Issuer/.well-known/openid-configuration says it.
	KeysURL string

	KeyClaim  string // the claim that names the key; "" means sub
	TeamClaim string // the claim that names the team; "" means that Key.Team does
	UserClaim string // the claim that names the user; "" means that Key.User does

	// Key is what each of these keys is but for what claims say. It has no Name, no Sum, no Secrets
	// and no Expires.
	Key Key
}

// Bounds of tokens and their issuers.
const (
	maxToken  = 8 << 10 // bytes of a token
	maxClaim  = 256     // bytes of a claim that names something
	maxIssuer = 256     // bytes of its URL
	// leeway is how far the issuer's clock may be from ours: a token passes for so long before nbf
	// and after exp.
	leeway = 30 * time.Second
)

// nameEnd separates the issuer's name from what a token says. An issuer's name cannot have it, so
// that two issuers never give a key the same name.
const nameEnd = "#"

// TokenAlgorithms lists the algorithms with which a token may be signed. All of them have a public
// key for checking: with a shared secret, or without a signature, whoever checks could also forge.
func TokenAlgorithms() []string {
	var list []string
	for _, a := range algorithms {
		list = append(list, string(a))
	}
	return list
}

var algorithms = []jose.SignatureAlgorithm{
	jose.RS256, jose.RS384, jose.RS512, jose.PS256, jose.PS384, jose.PS512, jose.ES256, jose.ES384, jose.ES512,
	jose.EdDSA,
}

// prefix is what the names of an issuer's keys begin with.
func (t *TokenIssuer) prefix() string {
	if t.Name != "" {
		return t.Name + nameEnd
	}
	return t.Issuer + nameEnd
}

// CheckIssuerURL returns what is wrong with the URL of an issuer of tokens, or of its keys. Keys
// that come over http could be anybody's, so that it is for this machine alone.
func CheckIssuerURL(text string) error {
	u, err := url.Parse(text)
	switch {
	case len(text) > maxIssuer:
		return fmt.Errorf("it has more than %d bytes", maxIssuer)
	case err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http":
		return errors.New("it is not an https URL")
	case u.User != nil || u.RawQuery != "" || u.ForceQuery || strings.Contains(text, "#"):
		return errors.New("it must be without user, query and fragment")
	case u.Scheme == "http" && !thisMachine(u.Hostname()):
		return errors.New("http is for an issuer on this machine: use https")
	}
	return nil
}

func thisMachine(host string) bool {
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && ip.IsLoopback()
}

// checkTokens returns the mistakes of the issuers of tokens.
func (c *Config) checkTokens() (errs []error) {
	issuers, prefixes := map[string]bool{}, map[string]bool{}
	for i := range c.Tokens {
		t := &c.Tokens[i]
		if issuers[t.Issuer] || prefixes[t.prefix()] {
			errs = append(errs, fmt.Errorf("gateway: tokens of %q: another entry has this issuer, or its name", t.Issuer))
		}
		issuers[t.Issuer], prefixes[t.prefix()] = true, true
		if err := t.check(); err != nil {
			errs = append(errs, fmt.Errorf("gateway: tokens of %q: %w", t.Issuer, err))
		}
		for k := range c.Keys {
			if name := c.Keys[k].Name; strings.HasPrefix(name, t.prefix()) {
				errs = append(errs, fmt.Errorf("gateway: the name of key %q is one of a token of %q: choose another one",
					name, t.Issuer))
			}
		}
	}
	return errs
}

func (t *TokenIssuer) check() error {
	if err := CheckIssuerURL(t.Issuer); err != nil {
		return fmt.Errorf("the issuer: %w", err)
	}
	if t.KeysURL != "" {
		if err := CheckIssuerURL(t.KeysURL); err != nil {
			return fmt.Errorf("the URL of its keys: %w", err)
		}
	}
	k := &t.Key
	switch {
	case strings.Trim(t.Name, nameChars) != "":
		return fmt.Errorf("the name %q is not made of letters, digits, - and _", t.Name)
	case len(t.Audiences) == 0 || slices.Contains(t.Audiences, ""):
		return errors.New("they need an audience: the name of this gateway at the issuer")
	case len(t.Algorithms) == 0:
		return errors.New("they need at least one algorithm")
	case t.TeamClaim != "" && k.Team != "" || t.UserClaim != "" && k.User != "":
		return errors.New("the team, or the user, is given by a claim and by the key as well: leave one of them out")
	case k.Name != "" || len(k.secrets()) != 1 || k.secrets()[0] != KeySecret{} || !k.Expires.IsZero():
		return errors.New("the key has a name, a secret or an end: it has those of the token")
	}
	for _, a := range t.Algorithms {
		if !slices.Contains(algorithms, jose.SignatureAlgorithm(a)) {
			return fmt.Errorf("%.20q is not one of %s", a, strings.Join(TokenAlgorithms(), ", "))
		}
	}
	return k.check()
}

// named returns the key of a token, by what its claims say.
func (t *TokenIssuer) named(claims map[string]any) (*Key, error) {
	k := t.Key
	by := t.KeyClaim
	if by == "" {
		by = "sub"
	}
	name, err := nameIn(claims, by)
	if err != nil {
		return nil, err
	}
	k.Name = t.prefix() + name
	if t.TeamClaim != "" {
		if k.Team, err = nameIn(claims, t.TeamClaim); err != nil {
			return nil, err
		}
	}
	if t.UserClaim != "" {
		if k.User, err = nameIn(claims, t.UserClaim); err != nil {
			return nil, err
		}
	}
	return &k, nil
}

// nameIn returns a claim that names something. The name appears in logs and keys of buckets, so it
// has only what can be seen.
func nameIn(claims map[string]any, claim string) (string, error) {
	unseen := func(r rune) bool {
		return r == utf8.RuneError || !unicode.IsGraphic(r) || unicode.IsSpace(r) && r != ' '
	}
	name, ok := claims[claim].(string)
	switch {
	case !ok || name == "":
		return "", fmt.Errorf("it has no text in the claim %q", claim)
	case len(name) > maxClaim:
		return "", fmt.Errorf("its claim %q has more than %d bytes", claim, maxClaim)
	case strings.TrimSpace(name) != name || strings.ContainsFunc(name, unseen):
		return "", fmt.Errorf("its claim %q has a character that cannot be seen", claim)
	}
	return name, nil
}
