package gateway

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"encoding/base64"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
)

// fuzzKey is a key pair of a fixed secret, so that signatures of tokens that are kept stay right.
func fuzzKey(f *testing.F) *ecdsa.PrivateKey {
	f.Helper()
	secret := make([]byte, 32)
	secret[31] = 7
	k, err := ecdsa.ParseRawPrivateKey(elliptic.P256(), secret)
	if err != nil {
		f.Fatal(err)
	}
	return k
}

// FuzzToken: no token makes the reader fail in another way than by an error of ours, which has
// nothing of the token. The only ones that pass are those whose claims the issuer has signed.
func FuzzToken(f *testing.F) {
	const url = "https://login.example.com"
	k := fuzzKey(f)
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.ES256, Key: jose.JSONWebKey{Key: k, KeyID: "k"}}, nil)
	if err != nil {
		f.Fatal(err)
	}
	now := time.Now()
	good, err := jwt.Signed(signer).Claims(jwt.Claims{
		Issuer: url, Subject: "alice", Audience: jwt.Audience{"drawgate"},
		Expiry: jwt.NewNumericDate(now.Add(time.Hour)),
	}).Serialize()
	if err != nil {
		f.Fatal(err)
	}
	conf := &TokenIssuer{Issuer: url, Audiences: []string{"drawgate"}, Algorithms: []string{"ES256", "RS256"}}
	keys := &keySet{known: []published{{id: "k", key: &k.PublicKey}}, began: now.Add(time.Hour)}
	s := &state{issuers: map[string]*issuer{url: {conf, keys, &roll{}}}}
	part := func(text string) string { return base64.RawURLEncoding.EncodeToString([]byte(text)) }
	head, rest, _ := strings.Cut(good, ".")
	body, sig, _ := strings.Cut(rest, ".")
	claims := part(`{"iss":"` + url + `","aud":"drawgate","sub":"bob","exp":9999999999}`)
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
			if len(parts) != 3 || parts[1] != body || key.Name != url+"#alice" {
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
