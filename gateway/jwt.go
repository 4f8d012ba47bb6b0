package gateway

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"

	"github.com/drawgate/drawgate/llm"
)

// issuer is a [TokenIssuer] in force.
type issuer struct {
	config *TokenIssuer
	keys   *keySet
	named  *roll // of its keys
}

// issuers puts the issuers of tokens in force, by what their claim iss says. One whose keys are
// where they were keeps those that were fetched.
func (h *Handler) issuers(list []TokenIssuer, old *state) map[string]*issuer {
	all := map[string]*issuer{}
	for i := range list {
		t := &list[i]
		if old != nil && old.issuers[t.Issuer] != nil && old.issuers[t.Issuer].config.KeysURL == t.KeysURL {
			all[t.Issuer] = &issuer{t, old.issuers[t.Issuer].keys, old.issuers[t.Issuer].named}
			continue
		}
		all[t.Issuer] = &issuer{t, newKeySet(h.life, t, h.opts.Issuers, h.opts.Logger), &roll{}}
	}
	return all
}

// closeKeys stops fetching keys that next, which may be nil, does not need.
func (s *state) closeKeys(next *state) {
	if s == nil {
		return
	}
	for name, i := range s.issuers {
		if next == nil || next.issuers[name] == nil || next.issuers[name].keys != i.keys {
			i.keys.close()
		}
	}
}

// isToken reports whether what a caller shows has the form of a signed token. Secrets of keys are
// looked for first, so that one of them may look like this too.
func isToken(secret string) bool { return strings.Count(secret, ".") == 2 }

// Errors of tokens. They have nothing of the token, not even what the library says of it, which
// quotes the token.
var (
	errTokenForm = errors.New("it is not a JWT in the compact form, signed with an algorithm that is accepted here")
	errTokenLong = fmt.Errorf("it has more than %d bytes", maxToken)
	errHeader    = errors.New("its header has crit, b64, cty or a typ other than JWT and at+jwt, which are not understood here")
	errStranger  = errors.New("its issuer is not one that this gateway trusts")
	errSignature = errors.New("its signature is not by a key of its issuer")
	errClaims    = errors.New("its claims cannot be read")
	errAudience  = errors.New("it is not for this gateway: its audience is another one")
	errNoEnd     = errors.New("it has no end (the claim exp)")
	errEarly     = errors.New("it is not valid yet (the claims nbf and iat)")
	errOver      = errors.New("it has expired")
)

// bearer returns the key of a signed token, and why its calls are refused now. A token that is not
// valid has no key.
func (s *state) bearer(ctx context.Context, token string) (*Key, *refusal) {
	t, from, err := s.readToken(token)
	if err != nil {
		return nil, refuseToken(err)
	}
	k, err := from.verify(ctx, t, time.Now())
	switch {
	case errors.Is(err, errNoKeys):
		return nil, &refusal{
			kind:    llm.Unavailable,
			message: "the token cannot be checked: the keys of its issuer could not be fetched so far. Try again later",
			after:   fetchEvery,
		}
	case err != nil:
		return nil, refuseToken(err)
	case k.Disabled:
		return k, refuseDisabled()
	case !from.named.admit(k.Name, time.Now()):
		return k, &refusal{
			kind: llm.Overloaded,
			message: fmt.Sprintf("tokens of this issuer have named %d keys today, and no more may call: ask whoever runs this gateway",
				maxNamed),
			after: time.Hour,
		}
	}
	return k, nil
}

func refuseDisabled() *refusal {
	return &refusal{kind: llm.KeyDisabled, message: "tokens of this issuer are disabled: ask whoever runs this gateway"}
}

func refuseToken(err error) *refusal {
	why := &refusal{
		kind: llm.Unauthorized, token: err,
		message: "the token is not valid: " + err.Error() + ". Get another one from an issuer that this gateway trusts",
	}
	if errors.Is(err, errOver) {
		why.kind, why.message = llm.KeyExpired, "the token has expired: get a new one from its issuer"
	}
	return why
}

// readToken reads a token that is not verified yet, and finds its issuer. Keys that the token has
// itself, or says where they are (jwk, jku, x5c, x5u), mean nothing.
func (s *state) readToken(token string) (*jwt.JSONWebToken, *issuer, error) {
	if len(token) > maxToken {
		return nil, nil, errTokenLong
	}
	if strings.Trim(token, nameChars+".") != "" { // the library passes over ends of lines
		return nil, nil, errTokenForm
	}
	t, err := jwt.ParseSigned(token, algorithms)
	if err != nil || len(t.Headers) != 1 {
		return nil, nil, errTokenForm
	}
	if !understood(&t.Headers[0]) {
		return nil, nil, errHeader
	}
	var claims struct {
		Issuer string `json:"iss"`
	}
	if t.UnsafeClaimsWithoutVerification(&claims) != nil {
		return nil, nil, errClaims
	}
	from := s.issuers[claims.Issuer]
	if from == nil {
		return nil, nil, errStranger
	}
	if !slices.Contains(from.config.Algorithms, t.Headers[0].Algorithm) {
		return nil, nil, errTokenForm
	}
	return t, from, nil
}

// understood reports whether the header of a token has nothing that changes what the token means.
func understood(h *jose.Header) bool {
	for _, name := range []jose.HeaderKey{"crit", "b64", jose.HeaderContentType} {
		if _, ok := h.ExtraHeaders[name]; ok {
			return false
		}
	}
	typ, ok := h.ExtraHeaders[jose.HeaderType]
	if !ok {
		return true
	}
	text, _ := typ.(string)
	text = strings.TrimPrefix(strings.ToLower(text), "application/")
	return text == "jwt" || text == "at+jwt"
}

// verify returns the key of a token if its signature is by the issuer and its claims hold.
func (i *issuer) verify(ctx context.Context, t *jwt.JSONWebToken, now time.Time) (*Key, error) {
	h := &t.Headers[0]
	key, err := i.keys.find(ctx, jose.SignatureAlgorithm(h.Algorithm), h.KeyID)
	if err != nil {
		return nil, err
	}
	if t.Claims(key) != nil {
		return nil, errSignature
	}
	var std jwt.Claims
	var all map[string]any
	if t.Claims(key, &std, &all) != nil {
		return nil, errClaims
	}
	if std.Expiry == nil {
		return nil, errNoEnd
	}
	expected := jwt.Expected{Issuer: i.config.Issuer, AnyAudience: i.config.Audiences, Time: now}
	switch err := std.ValidateWithLeeway(expected, leeway); {
	case errors.Is(err, jwt.ErrInvalidAudience):
		return nil, errAudience
	case errors.Is(err, jwt.ErrNotValidYet), errors.Is(err, jwt.ErrIssuedInTheFuture):
		return nil, errEarly
	case errors.Is(err, jwt.ErrExpired):
		return nil, errOver
	case err != nil:
		return nil, errClaims
	}
	k, err := i.config.named(all)
	if err != nil {
		return nil, err
	}
	k.issuer, k.Expires = i.config.Issuer, std.Expiry.Time().Add(leeway)
	return k, nil
}
