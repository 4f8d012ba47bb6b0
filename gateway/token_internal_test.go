package gateway

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"encoding/base64"
	"encoding/json"
	"errors"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"

	"github.com/drawgate/drawgate/llm"
)

// fuzzKey is a key pair of a fixed secret, so that signatures of tokens that are kept stay right.
func fuzzKey(tb testing.TB) *ecdsa.PrivateKey {
	tb.Helper()
	secret := make([]byte, 32)
	secret[31] = 7
	k, err := ecdsa.ParseRawPrivateKey(elliptic.P256(), secret)
	if err != nil {
		tb.Fatal(err)
	}
	return k
}

const trusted = "https://login.example.com"

// trusting returns what a gateway knows of the issuer, and a token that passes.
func trusting(tb testing.TB) (s *state, good string) {
	tb.Helper()
	k := fuzzKey(tb)
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.ES256, Key: jose.JSONWebKey{Key: k, KeyID: "k"}}, nil)
	if err != nil {
		tb.Fatal(err)
	}
	now := time.Now()
	good, err = jwt.Signed(signer).Claims(jwt.Claims{
		Issuer: trusted, Subject: "alice", Audience: jwt.Audience{"drawgate"},
		Expiry: jwt.NewNumericDate(now.Add(time.Hour)),
	}).Serialize()
	if err != nil {
		tb.Fatal(err)
	}
	conf := &TokenIssuer{Issuer: trusted, Audiences: []string{"drawgate"}, Algorithms: []string{"ES256", "RS256"}}
	keys := &keySet{known: []published{{id: "k", key: &k.PublicKey}}, began: now.Add(time.Hour)}
	s = &state{issuers: map[string]*issuer{trusted: {conf, keys, &roll{}}}}
	return s, good
}

// TestTooManyNames: when an issuer's tokens have named as many keys today as they may, another one
// is refused for now, and those that were named pass.
func TestTooManyNames(t *testing.T) {
	t.Parallel()
	for _, named := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) { // in which no day ends meanwhile
			s, token := trusting(t)
			names := s.issuers[trusted].named
			if named {
				names.admit(trusted+"#alice", time.Now())
			}
			for i := 0; len(names.sums) < maxNamed; i++ {
				names.admit(strconv.Itoa(i), time.Now())
			}
			k, why := s.bearer(t.Context(), token)
			if (why == nil) != named || k == nil || why != nil && why.kind != llm.Overloaded {
				t.Errorf("named before: %v: got %+v, %+v", named, k, why)
			}
		})
	}
}

// TestTokensAreManyCallers: where there are tokens, their keys and teams are told apart, though the
// file has one key: one caller's failures and large requests are not everybody's.
func TestTokensAreManyCallers(t *testing.T) {
	t.Parallel()
	claimed := TokenIssuer{TeamClaim: "team"}
	fixed := TokenIssuer{Key: Key{Team: "red"}}
	one := []Key{{Name: "alice", Team: "red"}}
	for _, c := range []struct {
		conf        Config
		teams, from int
	}{
		{Config{Keys: one}, 1, 0},
		{Config{Keys: one, Tokens: []TokenIssuer{fixed}}, 1, 1},
		{Config{Keys: one, Tokens: []TokenIssuer{claimed}}, 3, 2},
		{Config{Tokens: []TokenIssuer{{}}}, 2, 2},
	} {
		s := &state{config: c.conf, teams: c.conf.countTeams(), issuers: map[string]*issuer{}}
		for i := range c.conf.Tokens {
			s.issuers[strconv.Itoa(i)] = &issuer{}
		}
		if got := s.from(&Key{Name: "bob", Team: "red"}); s.teams != c.teams || len(got) != c.from {
			t.Errorf("%+v: %d teams and %q, want %d and %d", c.conf, s.teams, got, c.teams, c.from)
		}
	}
}

// FuzzToken: no token makes the reader fail in another way than by an error of ours, which has
// nothing of the token. The only ones that pass are those whose claims the issuer has signed.
func FuzzToken(f *testing.F) {
	s, good := trusting(f)
	part := func(text string) string { return base64.RawURLEncoding.EncodeToString([]byte(text)) }
	head, rest, _ := strings.Cut(good, ".")
	body, sig, _ := strings.Cut(rest, ".")
	claims := part(`{"iss":"` + trusted + `","aud":"drawgate","sub":"bob","exp":9999999999}`)
	for _, seed := range []string{
		good, head + "." + body + ".", head + "." + claims + "." + sig, "..", "a.b.c",
		part(`{"alg":"none"}`) + "." + claims + ".", part(`{"alg":"HS256","kid":"k"}`) + "." + claims + "." + sig,
		part(`{"alg":"ES256","kid":"k","crit":["exp"]}`) + "." + claims + "." + sig,
		part(`{"alg":"ES256","kid":"k","jwk":{"kty":"EC","crv":"P-256","x":"AA","y":"AA"}}`) + "." + claims + "." + sig,
		part(`{"alg":"RS256","x5c":["AA"]}`) + "." + claims + "." + sig, part(`[`) + "." + part(`{`) + ".AA",
		part(strings.Repeat("[", 2000)) + "." + part(strings.Repeat(`{"a":`, 900)) + ".AA",
	} {
		f.Add(seed)
	}
	known := []error{
		errTokenForm, errTokenLong, errHeader, errStranger, errSignature, errClaims, errAudience, errNoEnd, errEarly,
		errOver, errNoKey, errManyKeys,
	}
	f.Fuzz(func(t *testing.T, token string) {
		key, why := s.bearer(t.Context(), token)
		if why == nil {
			parts := strings.Split(token, ".")
			if len(parts) != 3 || parts[1] != body || key.Name != trusted+"#alice" {
				t.Fatalf("%q passed as %+v", token, key)
			}
			return
		}
		if key != nil || len(why.message) > 300 {
			t.Errorf("%q: %+v, %q", token, key, why.message)
		}
		parsed, from, err := s.readToken(token)
		if err == nil {
			_, err = from.verify(context.Background(), parsed, time.Now())
		}
		for _, k := range known {
			if errors.Is(err, k) {
				return
			}
		}
		if err == nil || !strings.Contains(err.Error(), `claim "sub"`) {
			t.Errorf("%q: an error that is not known: %v", token, err)
		}
	})
}

// FuzzPublishedKeys: of what an issuer publishes, only public keys for signatures are used, and
// anything else is left out.
func FuzzPublishedKeys(f *testing.F) {
	k := fuzzKey(f)
	for _, key := range []any{
		jose.JSONWebKey{KeyID: "a", Key: &k.PublicKey},
		jose.JSONWebKey{KeyID: "a", Key: k},
		jose.JSONWebKey{KeyID: "a", Key: []byte("secret")},
		map[string]any{"kty": "RSA", "n": "AQAB", "e": "AQAB"},
		map[string]any{"kty": "EC", "crv": "P-256", "x": "AA", "y": "AA"},
		map[string]any{"kty": "OKP", "crv": "Ed25519", "x": "AA"},
		nil, 7, "rsa",
		[]int{1},
	} {
		data, err := json.Marshal(key)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, p := range publishedIn([]json.RawMessage{data}) {
			fits := 0
			for _, alg := range algorithms {
				if suits(p.key, alg) {
					fits++
				}
			}
			if fits == 0 && !isCurve(p.key) {
				t.Errorf("%q: a key that no algorithm uses: %T", data, p.key)
			}
			if !samePublished(p, p) {
				t.Errorf("%q: a key is not the same as itself", data)
			}
		}
	})
}

func isCurve(key any) bool {
	k, ok := key.(*ecdsa.PublicKey)
	return ok && k.Curve != nil
}
