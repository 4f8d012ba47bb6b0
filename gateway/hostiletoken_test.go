package gateway_test

import (
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/drawgate/drawgate/gateway"
	"github.com/drawgate/drawgate/internal/syncbuffer"
)

// hostile is a token that must be refused.
type hostile struct {
	name, token string
	why         string // what the answer says
}

// Reasons of refusals.
const (
	form     = "it is not a JWT in the compact form, signed with an algorithm that is accepted here"
	unsigned = "its signature is not by a key of its issuer"
	noKey    = "its issuer has no such key"
	strange  = "its header has crit, b64, cty or a typ"
	stranger = "its issuer is not one that this gateway trusts"
	unread   = "its claims cannot be read"
	audience = "its audience is another one"
	early    = "it is not valid yet"
	ended    = "has expired"
	noEnd    = "it has no end"
	noName   = `it has no text in the claim \"sub\"`
	unseen   = `its claim \"sub\" has a character that cannot be seen`
	unknown  = "the key is missing or unknown"
	tooLong  = "it has more than 8192 bytes"
)

// wrongAlgorithms are tokens that say of their algorithm what they should not.
func wrongAlgorithms() []hostile {
	k := pairs()
	der, _ := x509.MarshalPKIXPublicKey(k.rsa.Public())
	public := pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})
	alg := func(name any) map[string]any { return header("alg", name) }
	cut := func(token string) string { return token[:strings.LastIndex(token, ".")+1] }
	return []hostile{
		{"none, not signed", cut(mint(k.rsa, "", alg("none"), claims())), form},
		{"None, not signed", cut(mint(k.rsa, "", alg("None"), claims())), form},
		{"none, signed", mint(k.rsa, "", alg("none"), claims()), form},
		{"no algorithm", mint(k.rsa, "", header("alg", drop), claims()), form},
		{"an empty algorithm", mint(k.rsa, "", alg(""), claims()), form},
		{"a number as algorithm", mint(k.rsa, "", alg(256), claims()), form},
		{"rs256", mint(k.rsa, "", alg("rs256"), claims()), form},
		{"HS256 with the public key as PEM", mint(public, "", alg("HS256"), claims()), form},
		{"HS256 with the public key as DER", mint(der, "", alg("HS256"), claims()), form},
		{"HS256 with the modulus", mint(k.rsa.N.Bytes(), "", alg("HS256"), claims()), form},
		{"HS256 with nothing", mint([]byte{}, "", alg("HS256"), claims()), form},
		{"HS256 with a secret that the issuer publishes", mint([]byte("a shared secret"), "", header("alg", "HS256", "kid", "oct"), claims()), form},
		{"RS256 by HMAC", mint(public, "", header(), claims()), unsigned},
		{"RS256 by HMAC with a secret that the issuer publishes", mint([]byte("a shared secret"), "", header("kid", "oct"), claims()), noKey},
		{"RS384 is not listed", mint(k.rsa, "RS384", alg("RS384"), claims()), form},
		{"PS256 is not listed", mint(k.rsa, "PS256", alg("PS256"), claims()), form},
		{"RS256 by PSS", mint(k.rsa, "PS256", header(), claims()), unsigned},
		{"RS256 by SHA-512", mint(k.rsa, "RS512", header(), claims()), unsigned},
		{"ES256 with the RSA key's kid", mint(k.ec, "", alg("ES256"), claims()), noKey},
		{"RS256 with the EC key's kid", mint(k.rsa, "", header("kid", "ec"), claims()), noKey},
		{"EdDSA with the EC key's kid", mint(k.ed, "", header("alg", "EdDSA", "kid", "ec"), claims()), noKey},
		{"ES256 with a key of P-384", mint(k.ec384, "", header("alg", "ES256", "kid", "ec384"), claims()), noKey},
		{"RS256 with a key for RS512", mint(k.rsa2, "", header("kid", "rs512"), claims()), noKey},
		{"a key that is for encryption", mint(k.rsa2, "", header("kid", "enc"), claims()), noKey},
		{"an RSA key of 1024 bits", mint(k.short, "", header("kid", "short"), claims()), noKey},
		{"a private key that the issuer publishes", mint(k.rsa2, "", header("kid", "private"), claims()), noKey},
	}
}

// wrongKeys are tokens that somebody else signed, or whose keys cannot be found.
func wrongKeys() []hostile {
	k := pairs()
	own := key("rsa", k.forger)
	cert := base64.StdEncoding.EncodeToString([]byte("no certificate"))
	by := func(changes ...any) string { return mint(k.forger, "", header(changes...), claims()) }
	zero := base64.RawURLEncoding.EncodeToString(make([]byte, 64))
	ecHeader := header("alg", "ES256", "kid", "ec")
	return []hostile{
		{"another key", by(), unsigned},
		{"another key of an unknown name", by("kid", "other"), noKey},
		{"another EC key", mint(k.ec2, "", ecHeader, claims()), unsigned},
		{"an EC signature of zeros", part(ecHeader) + "." + part(claims()) + "." + zero, unsigned},
		{"the right key by no name", mint(k.rsa, "", header("kid", drop), claims()), "several keys that fit"},
		{"the right key by an empty name", mint(k.rsa, "", header("kid", ""), claims()), "several keys that fit"},
		{"the right key by a number", mint(k.rsa, "", header("kid", 1), claims()), form},
		{"the right key by a list", mint(k.rsa, "", header("kid", []string{"rsa"}), claims()), form},
		{"the right key by a name in capitals", mint(k.rsa, "", header("kid", "RSA"), claims()), noKey},
		{"a path as the key's name", by("kid", "../../../../dev/null"), noKey},
		{"SQL as the key's name", by("kid", "x' UNION SELECT 'secret"), noKey},
		{"its own key (jwk)", by("jwk", own), unsigned},
		{"its own key (jwk), and no name", by("jwk", own, "kid", drop), "several keys that fit"},
		{"its own private key (jwk)", by("jwk", jose.JSONWebKey{KeyID: "rsa", Key: k.forger}), form},
		{"its own URL (jku)", by("jku", "http://127.0.0.1:1/keys"), unsigned},
		{"its own URL (x5u)", by("x5u", "http://127.0.0.1:1/cert"), unsigned},
		{"its own certificate (x5c)", by("x5c", []string{cert}), form},
	}
}

// wrongHeaders are tokens whose headers or form are not what they should be.
func wrongHeaders() []hostile {
	k := pairs()
	with := func(changes ...any) string { return mint(k.rsa, "", header(changes...), claims()) }
	good := valid()
	head, rest, _ := strings.Cut(good, ".")
	body, sig, _ := strings.Cut(rest, ".")
	other := part(claims("sub", "mallory"))
	raw := func(body string) string {
		signed := part(header("b64", false, "crit", []string{"b64"})) + "." + body
		return signed + "." + base64.RawURLEncoding.EncodeToString(sign(k.rsa, "", signed))
	}
	return []hostile{
		{"crit of a claim", with("crit", []string{"exp"}), strange},
		{"crit of nothing", with("crit", []string{}), strange},
		{"crit of what it has not", with("crit", []string{"x"}, "x", 1), strange},
		{"crit that is no list", with("crit", "exp"), strange},
		{"a payload as it is (b64)", raw(part(claims())), strange},
		{"b64 that is not critical", with("b64", true), strange},
		{"a token in a token", with("cty", "JWT"), strange},
		{"a token of another type", with("typ", "logout+jwt"), strange},
		{"a number as type", with("typ", 1), strange},
		{"kid twice", mint(k.rsa, "", `{"alg":"RS256","kid":"rsa","kid":"rsa"}`, claims()), form},
		{"alg twice", mint(k.rsa, "", `{"alg":"none","kid":"rsa","alg":"RS256"}`, claims()), form},
		{"a header that is a list", mint(k.rsa, "", `["RS256"]`, claims()), form},
		{"a header that is null", mint(k.rsa, "", `null`, claims()), form},
		{"an empty header", "." + body + "." + sig, form},
		{"no signature", head + "." + body + ".", unsigned},
		{"a signature that is cut off", good[:len(good)-8], unsigned},
		{"a signature of other claims", head + "." + other + "." + sig, unsigned},
		{"a signature of another header", part(header("typ", drop)) + "." + body + "." + sig, unsigned},
		{"no claims", mint(k.rsa, "", header(), ""), unread},
		{"claims that are a list", mint(k.rsa, "", header(), `["`+corpURL+`"]`), unread},
		{"claims that are null", mint(k.rsa, "", header(), `null`), stranger},
		{"claims that are no JSON", mint(k.rsa, "", header(), `iss=`+corpURL), unread},
		{"claims with something behind them", mint(k.rsa, "", header(), string(mustJSON(claims()))+`{}`), unread},
		{"padding", head + "." + body + "." + sig + "=", form},
		{"the other alphabet of base64", head + "." + body + "." + sig[:len(sig)-2] + "+/", form},
		{"a blank in it", head + ". " + body + "." + sig, form},
		{"JSON in the place of the compact form", `{"payload":"` + body + `.","protected":".` + head + `","signature":"` + sig + `"}`, form},
		{"two parts", head + "." + body, unknown},
		{"four parts", good + ".", unknown},
		{"five parts", good + "..", unknown},
		{"only dots", "..", form},
		{"8193 bytes", ofSize(8193), tooLong},
		{"32 KiB", ofSize(32 << 10), tooLong},
	}
}

// ofSize returns a token of about so many bytes, and not fewer, that is valid otherwise.
func ofSize(n int) string {
	for pad := n*3/4 - 600; ; pad += 3 { // three bytes are four of base64
		if token := valid("pad", strings.Repeat("x", pad)); len(token) >= n {
			return token
		}
	}
}

func wrongClaims() []hostile {
	now := time.Now().Unix()
	raw := func(from, to string) string {
		return mint(pairs().rsa, "", header(), strings.Replace(string(mustJSON(claims())), from, to, 1))
	}
	return []hostile{
		{"another issuer", valid("iss", "https://evil.example.com"), stranger},
		{"the issuer with a slash", valid("iss", corpURL+"/"), stranger},
		{"the issuer in capitals", valid("iss", strings.ToUpper(corpURL)), stranger},
		{"no issuer", valid("iss", drop), stranger},
		{"a number as issuer", valid("iss", 1), unread},
		{"a list of issuers", valid("iss", []string{corpURL}), unread},
		{"ISS", valid("iss", drop, "ISS", corpURL), stranger},
		{"another audience", valid("aud", "other"), audience},
		{"no audience", valid("aud", drop), audience},
		{"an empty list of audiences", valid("aud", []string{}), audience},
		{"other audiences", valid("aud", []string{"a", "b", "drawgate2", "DRAWGATE"}), audience},
		{"a number as audience", valid("aud", 1), unread},
		{"a number among audiences", valid("aud", []any{"drawgate", 1}), unread},
		{"no end", valid("exp", drop), noEnd},
		{"an end that is null", valid("exp", nil), noEnd},
		{"expired", valid("exp", now-31), ended},
		{"expired long ago", valid("exp", 1), ended},
		{"an end before all time", valid("exp", -1e15), ended},
		{"an end that is text", valid("exp", "9999999999"), unread},
		{"an end that is too large", valid("exp", 1e300), unread},
		{"an end that is true", valid("exp", true), unread},
		{"not valid yet", valid("nbf", now+90), early},
		{"a beginning that is text", valid("nbf", "0"), unread},
		{"issued in the future", valid("iat", now+90), early},
		{"no subject", valid("sub", drop), noName},
		{"an empty subject", valid("sub", ""), noName},
		{"a number as subject", valid("sub", 7), unread},
		{"a list as subject", valid("sub", []string{"alice"}), unread},
		{"an object as subject", valid("sub", map[string]string{"a": "alice"}), unread},
		{"SUB", valid("sub", drop, "SUB", "alice"), noName},
		{"a line end in the subject", valid("sub", "alice\nkey=bob"), unseen},
		{"NUL in the subject", valid("sub", "alice\x00"), unseen},
		{"a change of direction in the subject", valid("sub", "alice\u202ebob"), unseen},
		{"no width in the subject", valid("sub", "al\u200bice"), unseen},
		{"a blank before the subject", valid("sub", " alice"), unseen},
		{"half a character in the subject", raw(`"alice"`, `"al\ud800ice"`), unseen},
		{"a subject that is no UTF-8", raw(`"alice"`, "\"al\xffice\""), unseen},
		{"a subject of 257 bytes", valid("sub", strings.Repeat("a", 257)), "has more than 256 bytes"},
		{"sub twice", raw(`"sub":`, `"sub":"bob","sub":`), unread},
		{"iss twice", raw(`"iss":`, `"iss":"https://evil.example.com","iss":`), unread},
		{"exp twice", raw(`"exp":`, `"exp":1,"exp":`), unread},
	}
}

// TestHostileTokens: 117 tokens that are forged, expired, of another issuer, too long and so on are
// refused, each for its reason, over a network and in each provider's form. None of them reaches
// the provider, costs anything, or is in an answer or the log.
func TestHostileTokens(t *testing.T) {
	t.Parallel()
	k := pairs()
	p, conf := corp(corpURL)
	enc, rs512 := key("enc", k.rsa2), key("rs512", k.rsa2)
	enc.Use, rs512.Algorithm = "enc", "RS512"
	p.publish(key("rsa", k.rsa), key("rsa2", k.rsa2), key("ec", k.ec), key("ed", k.ed), enc, rs512,
		key("short", k.short), key("ec384", k.ec384), jose.JSONWebKey{KeyID: "private", Key: k.rsa2, Use: "sig"},
		map[string]string{"kty": "oct", "kid": "oct", "k": part("a shared secret")},
		map[string]string{"kty": "new"}, 7)
	issuer := httptest.NewServer(p)
	t.Cleanup(issuer.Close)
	// The issuer's name is that of a place on the network; its keys are at the test's server.
	conf.KeysURL = issuer.URL + "/keys"
	var log syncbuffer.Buffer
	refused := 0
	b := newBench(t, func(s *setup) {
		s.config.Tokens = []gateway.TokenIssuer{conf}
		s.options.Logger = slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	})
	for name, token := range map[string]string{
		"RS256": valid(), "of nearly 8 KiB": ofSize(8000),
		"ES256":                    mint(k.ec, "", header("alg", "ES256", "kid", "ec"), claims()),
		"EdDSA":                    mint(k.ed, "", header("alg", "EdDSA", "kid", "ed", "typ", "at+jwt"), claims()),
		"several audiences":        valid("aud", []string{"other", "drawgate"}),
		"a little expired":         valid("exp", time.Now().Unix()-20),
		"a little early":           valid("nbf", time.Now().Unix()+20),
		"its key, and another":     mint(k.rsa, "", header("jwk", key("x", k.forger), "jku", "http://x"), claims()),
		"claims of other programs": valid("scope", "a b", "groups", []string{"x"}, "nested", map[string]any{"exp": 1}),
	} {
		b.wantStatus(name, http.StatusOK, token)
	}
	b.settled()
	passed := len(b.sim.Calls())
	used := b.used("upstream", "account")["rpm"]
	seen := map[string]bool{}
	for _, list := range [][]hostile{wrongAlgorithms(), wrongKeys(), wrongHeaders(), wrongClaims()} {
		for _, c := range list {
			if seen[c.name] || seen[c.token] {
				t.Errorf("%s is there twice", c.name)
			}
			seen[c.name], seen[c.token] = true, true
			refused++
			for name, a := range apis {
				got := b.call(name, false, "Hello!", a.key+c.token)
				if got.status != http.StatusUnauthorized || !strings.Contains(got.body, c.why) {
					t.Errorf("%s, %s: got %d %s %v, want 401 with %q", c.name, name, got.status, got.body, got.err, c.why)
				}
				for piece := range strings.SplitSeq(c.token, ".") {
					if len(piece) >= 16 && strings.Contains(got.body, piece) {
						t.Errorf("%s, %s: the answer has a part of the token: %s", c.name, name, got.body)
					}
				}
			}
		}
	}
	b.settled()
	t.Logf("%d tokens were refused", refused)
	if n := len(b.sim.Calls()); n != passed || refused < 60 {
		t.Errorf("%d hostile tokens, and %d calls more reached the provider", refused, n-passed)
	}
	if now := b.used("upstream", "account")["rpm"]; now != used {
		t.Errorf("%d requests more were counted", now-used)
	}
	said := log.String()
	if strings.Contains(said, "eyJ") || strings.Contains(said, "mallory") {
		t.Errorf("the log has a token:\n%s", said)
	}
	if !strings.Contains(said, "keys=6 left_out=6") || !strings.Contains(said, `client=127.0.0.1 reason="it is not a JWT`) {
		t.Errorf("the log does not say which keys were left out, or why a token was refused:\n%s", said)
	}
}

func mustJSON(v any) []byte {
	data, _ := base64.RawURLEncoding.DecodeString(part(v))
	return data
}
