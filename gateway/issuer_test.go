package gateway_test

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/hmac"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/drawgate/drawgate/gateway"
)

// signers are key pairs of issuers, and of whoever forges tokens. They are made once.
type signers struct {
	rsa, rsa2, forger, short *rsa.PrivateKey
	ec, ec2, ec384           *ecdsa.PrivateKey
	ed                       ed25519.PrivateKey
}

var pairs = sync.OnceValue(func() *signers {
	rsaKey := func(bits int) *rsa.PrivateKey {
		k, err := rsa.GenerateKey(rand.Reader, bits)
		if err != nil {
			panic(err)
		}
		return k
	}
	ecKey := func(curve elliptic.Curve) *ecdsa.PrivateKey {
		k, err := ecdsa.GenerateKey(curve, rand.Reader)
		if err != nil {
			panic(err)
		}
		return k
	}
	return &signers{
		rsa: rsaKey(2048), rsa2: rsaKey(2048), forger: rsaKey(2048), short: rsaKey(1024),
		ec: ecKey(elliptic.P256()), ec2: ecKey(elliptic.P256()), ec384: ecKey(elliptic.P384()),
		ed: ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize)),
	}
})

// idp plays an issuer of tokens.
type idp struct {
	url string // the issuer

	mu      sync.Mutex
	keys    []any            // guarded by mu: as it publishes them
	asked   int              // guarded by mu: how often for keys
	began   int              // guarded by mu: how often for where they are
	respond http.HandlerFunc // guarded by mu: answers in the place of the issuer; nil: the issuer does
}

// key is how an issuer publishes a key.
func key(id string, public any) jose.JSONWebKey {
	if k, ok := public.(interface{ Public() crypto.PublicKey }); ok {
		public = k.Public()
	}
	return jose.JSONWebKey{KeyID: id, Key: public, Use: "sig"}
}

func (p *idp) publish(keys ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.keys = keys
}

// instead lets a handler answer in the issuer's place; nil is the issuer again.
func (p *idp) instead(h http.HandlerFunc) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.respond = h
}

// fetches returns how often the issuer was asked for its keys, or where they are.
func (p *idp) fetches() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return max(p.asked, p.began)
}

// ServeHTTP implements http.Handler.
func (p *idp) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	keys, respond := p.keys, p.respond
	about := strings.HasSuffix(r.URL.Path, "/.well-known/openid-configuration")
	if about {
		p.began++
	} else {
		p.asked++
	}
	p.mu.Unlock()
	switch {
	case respond != nil:
		respond(w, r)
	case about:
		_ = json.NewEncoder(w).Encode(map[string]any{"issuer": p.url, "jwks_uri": p.url + "/keys"})
	default:
		_ = json.NewEncoder(w).Encode(map[string]any{"keys": keys})
	}
}

// down is an issuer that does not work.
func down(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusBadGateway) }

// RoundTrip implements http.RoundTripper, for bubbles, which have no network.
func (p *idp) RoundTrip(r *http.Request) (*http.Response, error) {
	w := httptest.NewRecorder()
	done := make(chan struct{})
	go func() {
		defer close(done)
		p.ServeHTTP(w, r)
	}()
	select {
	case <-done:
		return w.Result(), nil
	case <-r.Context().Done():
		<-done
		return nil, r.Context().Err()
	}
}

const corpURL = "https://login.example.com/corp"

// corp is the issuer of the tests, with a key of each type, and what a gateway's configuration says
// of it.
func corp(url string) (*idp, gateway.TokenIssuer) {
	k := pairs()
	p := &idp{url: url}
	p.publish(key("rsa", k.rsa), key("ec", k.ec), key("ed", k.ed))
	return p, gateway.TokenIssuer{
		Issuer: url, Name: "corp", Audiences: []string{"drawgate"},
		Algorithms: []string{"RS256", "ES256", "EdDSA"},
	}
}

// claims are those of a valid token, changed by pairs of a name and a value. The value drop is
// none.
func claims(changes ...any) map[string]any {
	now := time.Now().Unix()
	all := map[string]any{
		"iss": corpURL, "aud": "drawgate", "sub": "alice", "iat": now - 1, "nbf": now - 1, "exp": now + 3600,
	}
	return change(all, changes...)
}

func header(changes ...any) map[string]any {
	return change(map[string]any{"alg": "RS256", "kid": "rsa", "typ": "JWT"}, changes...)
}

type dropped struct{}

var drop = dropped{}

func change(all map[string]any, changes ...any) map[string]any {
	all = maps.Clone(all)
	for i := 0; i < len(changes); i += 2 {
		name, _ := changes[i].(string)
		if all[name] = changes[i+1]; changes[i+1] == drop {
			delete(all, name)
		}
	}
	return all
}

// part is a part of a token: text as it is, anything else as JSON.
func part(v any) string {
	text, ok := v.(string)
	if !ok {
		data, err := json.Marshal(v)
		if err != nil {
			panic(err)
		}
		text = string(data)
	}
	return base64.RawURLEncoding.EncodeToString([]byte(text))
}

// mint signs a token, whatever its header says, with the way of signing of a key: RS256, ES256,
// ES384 or EdDSA, or HS256 for bytes. A how that is not "" is another way with an RSA key.
func mint(by any, how string, header, claims any) string {
	signed := part(header) + "." + part(claims)
	return signed + "." + base64.RawURLEncoding.EncodeToString(sign(by, how, signed))
}

func sign(by any, how, text string) (sig []byte) {
	var err error
	hash := crypto.SHA256
	switch how {
	case "RS384":
		hash = crypto.SHA384
	case "RS512":
		hash = crypto.SHA512
	}
	if k, ok := by.(*ecdsa.PrivateKey); ok && k.Curve == elliptic.P384() {
		hash = crypto.SHA384
	}
	h := hash.New()
	_, _ = io.WriteString(h, text)
	sum := h.Sum(nil)
	switch k := by.(type) {
	case *rsa.PrivateKey:
		if how == "PS256" {
			sig, err = rsa.SignPSS(rand.Reader, k, hash, sum, &rsa.PSSOptions{SaltLength: rsa.PSSSaltLengthEqualsHash})
		} else {
			sig, err = rsa.SignPKCS1v15(nil, k, hash, sum)
		}
	case *ecdsa.PrivateKey:
		r, s, signErr := ecdsa.Sign(rand.Reader, k, sum)
		if err = signErr; err == nil {
			size := (k.Params().BitSize + 7) / 8
			sig = append(r.FillBytes(make([]byte, size)), s.FillBytes(make([]byte, size))...)
		}
	case ed25519.PrivateKey:
		sig = ed25519.Sign(k, []byte(text))
	case []byte:
		mac := hmac.New(sha256.New, k)
		_, _ = io.WriteString(mac, text)
		sig = mac.Sum(nil)
	}
	if err != nil {
		panic(err)
	}
	return sig
}

// valid returns a token that passes.
func valid(changes ...any) string { return mint(pairs().rsa, "", header(), claims(changes...)) }

func bearer(token string) string { return "Authorization: Bearer " + token }

// withTokens adds an issuer to a gateway in a bubble. change may be nil.
func withTokens(p *idp, t gateway.TokenIssuer, more func(*setup)) func(*setup) {
	return func(s *setup) {
		s.config.Tokens = []gateway.TokenIssuer{t}
		s.options.Issuers = p
		if more != nil {
			more(s)
		}
	}
}

func (b *bench) wantStatus(what string, want int, token string) {
	b.Helper()
	if got := b.call("openai", false, "Hello!", bearer(token)); got.status != want {
		b.Errorf("%s: got %d %s, want %d", what, got.status, got.body, want)
	}
}
