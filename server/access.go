package server

import (
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"fmt"
	"net/http"
	"strings"

	"github.com/drawgate/drawgate/api"
)

// Role is a permission of an access token.
type Role string

// The roles. RoleAdmin includes the others; RoleTake and RoleRead do not include each other.
const (
	RoleTake Role = "take" // take, settle, and forward-auth
	// status, explain, policies, the details of health, metrics and incidents (unless the token is
	// bound to a tenant).
	RoleRead Role = "read"
	// reset, pause, unpause, adjust, disable, enable, buckets, usage, waiting, refusals, history,
	// reload.
	RoleAdmin Role = "admin"
)

// Token is an access token in the server's configuration, given by its secret or by the SHA-256 of
// the secret. Only the hash is kept.
type Token struct {
	Name   string // for people; optional
	Secret string // at least 16 bytes; "" if SHA256 is given
	SHA256 string // of the secret, 64 hexadecimal digits; "" if Secret is given
	Roles  []Role // at least one
	Tenant string // if not "", the only tenant whose buckets it may use, and the default for buckets without a tenant
}

// minSecret is the least number of bytes in a secret: shorter ones can be guessed.
const minSecret = 16

// everyone is the caller if no access tokens are configured.
var everyone = &access{take: true, read: true, admin: true}

// access is what one token allows. It is not changed after New.
type access struct {
	sum               [sha256.Size]byte
	take, read, admin bool
	name, tenant      string
}

// newAccess checks a token. Its error never shows the secret.
func newAccess(i int, t *Token) (*access, error) {
	name := fmt.Sprintf("access token %d", i+1)
	if t.Name != "" {
		name = fmt.Sprintf("access token %q", t.Name)
	}
	a := &access{name: t.Name, tenant: t.Tenant}
	switch {
	case (t.Secret == "") == (t.SHA256 == ""):
		return nil, fmt.Errorf("server: %s: give either its secret or the secret's SHA-256", name)
	case t.Secret != "" && len(t.Secret) < minSecret:
		return nil, fmt.Errorf("server: %s: its secret has %d bytes, but at least %d are needed: generate a random one",
			name, len(t.Secret), minSecret)
	case t.Secret != "":
		a.sum = sha256.Sum256([]byte(t.Secret))
	default:
		sum, err := hex.DecodeString(t.SHA256)
		if err != nil || len(sum) != sha256.Size {
			return nil, fmt.Errorf("server: %s: its SHA-256 must have %d hexadecimal digits", name, 2*sha256.Size)
		}
		a.sum = [sha256.Size]byte(sum)
	}
	if len(t.Roles) == 0 {
		return nil, fmt.Errorf("server: %s has no role: give it %s, %s or %s", name, RoleTake, RoleRead, RoleAdmin)
	}
	for _, r := range t.Roles {
		switch r {
		case RoleTake:
			a.take = true
		case RoleRead:
			a.read = true
		case RoleAdmin:
			a.take, a.read, a.admin = true, true, true
		default:
			return nil, fmt.Errorf("server: %s: unknown role %q (have: %s, %s and %s)", name, r, RoleTake, RoleRead,
				RoleAdmin)
		}
	}
	return a, nil
}

// gatekeeper holds the access tokens.
type gatekeeper []*access

func newGatekeeper(tokens []Token) (gatekeeper, error) {
	var g gatekeeper
	for i := range tokens {
		a, err := newAccess(i, &tokens[i])
		if err != nil {
			return nil, err
		}
		for _, other := range g {
			if other.sum == a.sum {
				return nil, fmt.Errorf("server: access token %d and another one have the same secret", i+1)
			}
		}
		g = append(g, a)
	}
	return g, nil
}

// find returns what a secret allows, or nil. It takes the same time for every secret.
func (g gatekeeper) find(secret string) (found *access) {
	sum := sha256.Sum256([]byte(secret))
	for _, a := range g {
		if subtle.ConstantTimeCompare(sum[:], a.sum[:]) == 1 {
			found = a
		}
	}
	return found
}

// tokenHeader carries the access token where Authorization has another purpose: with forward-auth
// it belongs to the site's client.
const tokenHeader = "X-Drawgate-Token" //nolint:gosec // the name of a header is not a secret

// secretOf returns the secret of a request, or "" if it has none.
func secretOf(h http.Header) string {
	if v := h[tokenHeader]; len(v) == 1 {
		return v[0]
	}
	v := h["Authorization"]
	if len(v) != 1 {
		return ""
	}
	scheme, secret, ok := strings.Cut(v[0], " ")
	if !ok || !strings.EqualFold(scheme, "Bearer") {
		return ""
	}
	return strings.TrimLeft(secret, " ")
}

// who returns what a request may do, or a problem if it has no known token.
func (g gatekeeper) who(h http.Header) (*access, *api.Problem) {
	if len(g) == 0 {
		return everyone, nil
	}
	secret := secretOf(h)
	if secret == "" {
		return nil, problem(api.CodeUnauthorized, "an access token is needed: send Authorization: Bearer and the token")
	}
	a := g.find(secret)
	if a == nil {
		return nil, problem(api.CodeUnauthorized, "this server does not know the access token")
	}
	return a, nil
}

// has reports whether the role is allowed.
func (a *access) has(r Role) bool {
	switch r {
	case RoleTake:
		return a.take
	case RoleRead:
		return a.read
	case RoleAdmin:
		return a.admin
	}
	return true // a path without a role is open to everybody
}

// tenantOf returns the tenant for a bucket that names t, or a problem if the token may not use it.
func (a *access) tenantOf(t string) (string, *api.Problem) {
	switch {
	case a.tenant == "" || t == a.tenant:
		return t, nil
	case t == "":
		return a.tenant, nil
	}
	return "", problem(api.CodeForbidden, "this access token is bound to a tenant, which is not %q", t)
}

// mayTouch returns a problem if a reservation has buckets of another tenant.
func (a *access) mayTouch(buckets []api.Bucket) *api.Problem {
	for i := range buckets {
		if a.tenant != "" && buckets[i].Tenant != a.tenant {
			return problem(api.CodeForbidden, "this access token is bound to a tenant, which is not the reservation's")
		}
	}
	return nil
}

// handler serves one path for callers with permission.
type handler func(w http.ResponseWriter, r *http.Request, who *access)

// nobody is a caller without a token where one is needed.
var nobody = &access{}

// only admits callers with a role; "" admits everybody.
func (s *Server) only(role Role, h handler) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		who, p := s.gate.who(r.Header)
		switch {
		case role == "" && p != nil:
			who, p = nobody, nil
		case p == nil && !who.has(role):
			p = problem(api.CodeForbidden, "this access token does not have the role %s", role)
		}
		if p != nil {
			writeProblem(w, p)
			return
		}
		h(w, r, who)
	}
}

// unbound returns a problem if the token is bound to a tenant, for operations on all tenants.
func (a *access) unbound() *api.Problem {
	if a.tenant == "" {
		return nil
	}
	return problem(api.CodeForbidden, "this access token is bound to a tenant, and this concerns all tenants")
}
