package config

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/netip"
	"slices"

	"github.com/goccy/go-yaml/ast"

	"github.com/drawgate/drawgate/internal/pattern"
)

// ListenOff as an address switches a listener off.
const ListenOff = "off"

const maxTokens = 1000

// Server configures the server: where it listens, and whom it trusts.
type Server struct {
	Listen string // host:port for programs and proxies, ListenOff, or "" for the server's default, on loopback
	Admin  string // host:port for administrators and metrics, ListenOff, or "" for the server's default, on loopback
	GRPC   string // host:port for Envoy, ListenOff or "" for none

	TLS      TLS
	Tokens   []Token // none: whoever reaches a listener may do everything
	Insecure bool    // listen on addresses other than loopback without tokens and client certificates
	ReadyAll bool    // /readyz answers 503 if any policy cannot be decided; false: if none can

	Proxies     Proxies
	ForwardAuth ForwardAuth
}

// TLS names the files of the server's certificate, in PEM. All empty: no TLS.
type TLS struct {
	Cert, Key string
	ClientCA  string // if given, only clients with a certificate of this authority are served
}

// Role is what an access token allows.
type Role string

// The roles. RoleAdmin includes the others.
const (
	RoleTake  Role = "take"
	RoleRead  Role = "read"
	RoleAdmin Role = "admin"
)

var roles = []Role{RoleTake, RoleRead, RoleAdmin}

// Token is an access token of the server. Only the SHA-256 of its secret is known.
type Token struct {
	Name   string // for people; may be empty
	Roles  []Role
	Tenant string // if not "", the only tenant whose buckets it may name

	// Sum is the SHA-256 of the secret. It is zero in what [Load] and [Parse] return if the secret
	// is named by Secret: [Resolve] looks it up.
	Sum    [sha256.Size]byte
	Secret Secret // where the secret is; empty if the file has its SHA-256
}

// Digest returns the SHA-256 of the secret in hexadecimal digits.
func (t *Token) Digest() string { return hex.EncodeToString(t.Sum[:]) }

// Proxies are the proxies that are trusted to name the client they ask for.
type Proxies struct {
	Trusted []netip.Prefix // none: the client is whoever opened the connection
	Header  string         // the header with the client; "" means X-Forwarded-For
	Unix    bool           // peers that connect over a Unix socket are trusted as well
}

// ForwardAuth configures the answers to proxies (nginx auth_request, Caddy forward_auth, Traefik
// ForwardAuth).
type ForwardAuth struct {
	Status           int  // of a refusal; 0 means 429
	AllowUnavailable bool // requests pass if the store does not decide; a decision of a fallback counts as a decision
	// policies of which all callers share a bucket: a refusal says that it is not the caller's own
	// limit
	Shared   []string
	Describe []string // policies whose limits the headers describe; none means all

	// The headers in which proxies describe the request. "" means those of nginx, Caddy and
	// Traefik, and none for user and class.
	URI, Method, Host, User, Class string
}

// refusalStatuses are the HTTP statuses that proxies understand as a refusal.
var refusalStatuses = []int{401, 403, 429}

var serverSection = &section[Server]{name: "server", what: "server", noted: "server", settings: (*Server).settings}

func (s *Server) settings() []setting {
	return []setting{
		{"listen", asAddress.to(&s.Listen), "`127.0.0.1:7878`", "`host:port` of the API and of forward-auth; `off` " +
			"for none; port 0 chooses a free one"},
		{"admin", asAddress.to(&s.Admin), "`127.0.0.1:7879`", "`host:port` for administrators and metrics; `off` for " +
			"none"},
		{"grpc", asAddress.to(&s.GRPC), "`off`", "`host:port` of the rate limit service for Envoy; `off` for none"},
		{"tls", tlsSection.to(&s.TLS), none, "TLS on all listeners; changed files are reloaded"},
		{"tokens", many(tokenSection, maxTokens).to(&s.Tokens), none, "access tokens. Without any, and without " +
			"`client_ca`, everybody who reaches a listener may do everything, and only loopback addresses are served"},
		{"insecure", asFlag.to(&s.Insecure), no, "serve other addresses without tokens and client certificates"},
		{"ready", either("any", "all").to(&s.ReadyAll), "`any`", "while the store is unavailable, `/readyz` answers " +
			"200 if `any` policy can be decided by its fallback, or only if `all` can: see [health](http.md#health)"},
		{"proxies", proxySection.to(&s.Proxies), none, "which proxies are trusted to name the client's address. " +
			"Without any, the client is whoever opened the connection"},
		{"forward_auth", forwardSection.to(&s.ForwardAuth), "", "how `/auth`, for nginx auth_request, Caddy " +
			"forward_auth and Traefik ForwardAuth, answers"},
	}
}

var tlsSection = &section[TLS]{
	name: "tlsFiles", what: "tls", settings: (*TLS).settings,
	lacks: "tls needs cert and key, the files of the certificate and of its key",
	hint:  "such as {cert: /etc/drawgate/tls.crt, key: /etc/drawgate/tls.key}",
}

func (t *TLS) settings() []setting {
	return []setting{
		{"cert", asText.to(&t.Cert), required, "file with the certificate and the intermediate ones, in PEM"},
		{"key", textBy((*decoder).keyFile, nil).to(&t.Key), required, "file with its key, in PEM"},
		{"client_ca", asText.to(&t.ClientCA), none, "file with authorities, in PEM: only clients with a certificate " +
			"of one of them are served"},
	}
}

// keyFile reads the path of a private key. The key itself must not be in the file.
func (d *decoder) keyFile(e entry) string {
	if _, ok := e.value.(*ast.LiteralNode); ok {
		d.hideValue(e.value)
		d.problem(e.at, "write the path of its file", "do not put a key in this file")
		return ""
	}
	text, _ := d.text(e)
	return text
}

var tokenSection = &section[Token]{
	name: "token", what: "a token", settings: (*Token).settings,
	more:  schema{"oneOf": need("token_env", "token_file", "sha256")},
	lacks: "the token has no role", hint: "give it one of take, read, admin, or a list of them",
	check: func(d *decoder, e entry, t *Token, seen map[string]bool, wrong bool) {
		d.oneSecret(spanOf(e.value), "a token", "token", seen["sha256"], t.Secret, wrong)
	},
}

func (t *Token) settings() []setting {
	asRoles := once(oneOrMore(words(roles...), len(roles)))
	asRoles.node = func(list []Role) node {
		if len(list) == 1 {
			return textNode(list[0])
		}
		return texts(list)
	}
	return append([]setting{
		{"name", asShort.to(&t.Name), "", "for people"},
		{"role", asRoles.to(&t.Roles), required, "`take` (take, settle, forward-auth), `read` (status, explain, " +
			"policies, upstreams, incidents, metrics), `admin` (everything), or a list of them"},
		{"tenant", asShort.to(&t.Tenant), "any", "the only tenant whose buckets it may name. Such a token cannot " +
			"read metrics, which show all tenants"},
		{"sha256", digest(&t.Sum, &t.Secret), oneOfThree, "the SHA-256 of the token: `printf %s \"$TOKEN\" | " +
			"sha256sum`"},
	}, t.Secret.settings("token", oneOfThree, "the token, of at least 16 bytes")...)
}

// digest is the value of the SHA-256 of a secret, which is shown if the file does not say where the
// secret is.
func digest(sum *[sha256.Size]byte, named *Secret) value {
	return value{
		read: func(d *decoder, e entry) { *sum = d.digest(e) },
		node: func() (n node) {
			if *named == (Secret{}) {
				n = textNode(hex.EncodeToString(sum[:]))
			}
			return n
		},
		schema: schema{"type": "string"}.with(matching(digests)),
	}
}

var digests = pattern.New(`^(sha256:)?[0-9a-fA-F]{64}$`)

// digest reads the SHA-256 of a secret. Any other value may be the secret itself, so it is not
// shown.
func (d *decoder) digest(e entry) (sum [sha256.Size]byte) {
	n, ok := e.value.(*ast.StringNode)
	if ok && digests().MatchString(n.Value) {
		sum, _ = parseHash(hashPrefix + n.Value[len(n.Value)-2*sha256.Size:])
		return sum
	}
	d.hideValue(e.value)
	d.problem(spanOf(e.value), `it is what sha256sum prints: printf %s "$TOKEN" | sha256sum; put it in quotes`,
		"sha256 must be 64 hexadecimal digits")
	return sum
}

var proxySection = &section[Proxies]{
	name: "proxies", what: "proxies", settings: (*Proxies).settings,
	check: func(d *decoder, e entry, p *Proxies, _ map[string]bool, wrong bool) {
		if !wrong && len(p.Trusted) == 0 && !p.Unix {
			d.missing(spanOf(e.value), "such as {trusted: [10.0.0.0/8]}",
				"proxies trusts nobody: it needs trusted or unix")
		}
	},
}

func (p *Proxies) settings() []setting {
	return []setting{
		{"trusted", readBy(asNetworks, (*decoder).trusted).to(&p.Trusted), none, "networks of proxies that are trusted to " +
			"name the client. A header that a trusted proxy passes on unchecked was written by its client"},
		{"header", asHeader.to(&p.Header), "`X-Forwarded-For`", "the header with the client's address. It is read " +
			"from the right, up to the first address that is not trusted"},
		{"unix", asFlag.to(&p.Unix), no, "peers that connect over a Unix socket are trusted too"},
	}
}

// trusted reads the networks of proxies.
func (d *decoder) trusted(e entry) []netip.Prefix {
	list := asNetworks.read(d, e)
	for _, p := range list {
		if p.Bits() == 0 {
			d.warn(spanOf(e.value), "name the networks of your proxies",
				"every client in %s is trusted to name its own address: each can choose whose limit it uses", p)
		}
	}
	return list
}

var forwardSection = &section[ForwardAuth]{name: "forwardAuth", what: "forward_auth", settings: (*ForwardAuth).settings}

func (f *ForwardAuth) settings() []setting {
	status := bounded(readBy(number[int](1, 999), func(d *decoder, e entry) int {
		n := int(d.integer(e, 1, 999))
		if n != 0 && !slices.Contains(refusalStatuses, n) {
			d.problem(spanOf(e.value), "", "a refusal cannot be answered with %d: use 401, 403 or 429", n)
		}
		return n
	}), "")
	status.schema = schema{"type": "integer", "enum": refusalStatuses}
	policies := oneOrMore(asText, maxTokens) // finish checks whether they exist
	return []setting{
		{"status", status.to(&f.Status), "429", "the status of a refusal: 401, 403 or 429. nginx understands only " +
			"401 and 403"},
		{"allow_unavailable", asFlag.to(&f.AllowUnavailable), no, "requests pass, marked, if nothing decides; otherwise they get " +
			"503. A decision of a `fallback` counts as a decision"},
		{"allow_away", asFlag.to(&f.AllowUnavailable).retired(), "", ""},
		{"shared", policies.to(&f.Shared), none, "policies of which all callers share a bucket: a refusal then says " +
			"that it is not the caller's own limit"},
		{"describe", policies.to(&f.Describe), "all", "policies whose limits the headers describe"},
		{
			"uri_header", asHeader.to(&f.URI), "`X-Forwarded-Uri`, `X-Original-URI` or `X-Original-URL`",
			"the header with the request's path; the proxy must overwrite it",
		},
		{
			"method_header", asHeader.to(&f.Method), "`X-Forwarded-Method` or `X-Original-Method`",
			"the header with the request's method; the proxy must overwrite it",
		},
		{"host_header", asHeader.to(&f.Host), "`X-Forwarded-Host`", "the header with the request's host; the proxy " +
			"must overwrite it"},
		{"user_header", asHeader.to(&f.User), none, "the header with the signed-in user; the proxy must overwrite it"},
		{"class_header", asHeader.to(&f.Class), none, "the header with the caller's class; the proxy must overwrite " +
			"it. See [`api_keys`](#api_keys)"},
	}
}

// lookUpSecrets finds the secrets that the configuration names.
func (c *Config) lookUpSecrets(env *environment) (problems Problems) {
	report := func(setting string, err error) {
		if err != nil {
			problems = append(problems, Problem{File: c.from(setting), Message: fmt.Sprintf("%s: %s", setting, err)})
		}
	}
	for i := range c.Server.Tokens {
		t := &c.Server.Tokens[i]
		if t.Secret == (Secret{}) {
			continue
		}
		from := c.from("server.tokens")
		if t.Sum != ([sha256.Size]byte{}) { // of a variable that the file does not name
			if len(env.get(t.Secret.Env)) < minSecret {
				continue // this was reported
			}
			from = "environment: " + t.Secret.Env
		} else if p, ok := c.at["server.tokens"]; ok {
			from = p.String()
		}
		err := t.Secret.lookUp(env, &c.read)
		if err != nil {
			problems = append(problems, Problem{File: from, Message: "server.tokens: " + err.Error()})
		} else {
			t.Sum = sha256.Sum256([]byte(t.Secret.value))
			t.Secret.value = ""
		}
	}
	if i, k, same := sameToken(c.Server.Tokens); same && len(problems) == 0 {
		report("server.tokens", fmt.Errorf("tokens %d and %d are the same", i+1, k+1))
	}
	for i := range c.Gateway.Upstreams {
		u := &c.Gateway.Upstreams[i]
		report(upstreamSetting(u.Name), u.APIKey.lookUp(env, &c.read))
	}
	for i := range c.Gateway.Keys {
		k := &c.Gateway.Keys[i]
		report(keySetting(i), k.lookUp(env, &c.read))
		report(keySetting(i)+".secrets", k.lookUpSecrets(env, &c.read))
	}
	if len(problems) == 0 {
		i, err := sameKey(c.Gateway.Keys)
		report(keySetting(i), err)
	}
	t := &c.Telemetry
	report("telemetry.salt_"+t.Salt.kind(), t.Salt.lookUp(env, &c.read))
	report("telemetry.webhook", t.Webhook.Secret.lookUp(env, &c.read))
	if a := &t.Webhook.Address; *a != (Secret{}) {
		report("telemetry.webhook", a.lookUpLink(env, &c.read))
		t.Webhook.URL = a.value
	}
	return problems
}

// sameToken returns the positions of two tokens with the same secret.
func sameToken(list []Token) (i, k int, same bool) {
	first := map[[sha256.Size]byte]int{}
	for k := range list {
		if i, same := first[list[k].Sum]; same {
			return i, k, true
		}
		first[list[k].Sum] = k
	}
	return 0, 0, false
}
