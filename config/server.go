package config

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/netip"
	"regexp"
	"slices"

	"github.com/goccy/go-yaml/ast"
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

var roles = []string{string(RoleTake), string(RoleRead), string(RoleAdmin)}

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
	Status    int      // of a refusal; 0 means 429
	AllowAway bool     // requests pass if the store does not decide; a decision of a fallback counts as a decision
	Shared    []string // policies of which all callers share a bucket: a refusal says that it is not the caller's own limit
	Describe  []string // policies whose limits the headers describe; none means all

	// The headers in which proxies describe the request. "" means those of nginx, Caddy and
	// Traefik, and none for user and class.
	URI, Method, Host, User, Class string
}

// refusalStatuses are the HTTP statuses that proxies understand as a refusal.
var refusalStatuses = []int{401, 403, 429}

func (d *decoder) server(e entry) {
	d.settings(e.value, "server", "server", d.config.Server.settings(d))
}

func (s *Server) settings(d *decoder) []setting {
	var tokens node
	for i := range s.Tokens {
		tokens.list = append(tokens.list, settingsNode(s.Tokens[i].settings(d, nil)))
	}
	return []setting{
		{"listen", func(e entry) { s.Listen = d.address(e) }, textNode(s.Listen)},
		{"admin", func(e entry) { s.Admin = d.address(e) }, textNode(s.Admin)},
		{"grpc", func(e entry) { s.GRPC = d.address(e) }, textNode(s.GRPC)},
		{"tls", func(e entry) { s.TLS = d.tls(e) }, settingsNode(s.TLS.settings(d))},
		{"tokens", func(e entry) { s.Tokens = d.tokens(e) }, tokens},
		{"insecure", func(e entry) { s.Insecure = d.boolean(e) }, flagNode(s.Insecure)},
		{"ready", func(e entry) { s.ReadyAll = d.oneOf(e, "any", "all") == "all" }, wordNode(s.ReadyAll, "all")},
		{"proxies", func(e entry) { s.Proxies = d.proxies(e) }, settingsNode(s.Proxies.settings(d))},
		{"forward_auth", func(e entry) { s.ForwardAuth = d.forwardAuth(e) }, settingsNode(s.ForwardAuth.settings(d))},
	}
}

func (d *decoder) tls(e entry) (t TLS) {
	before := len(d.problems)
	d.settings(e.value, "tls", "", t.settings(d))
	if len(d.problems) == before && (t.Cert == "" || t.Key == "") {
		d.missing(spanOf(e.value), "such as {cert: /etc/drawgate/tls.crt, key: /etc/drawgate/tls.key}", "tls needs cert and key, the files of the certificate and of its key")
	}
	return t
}

func (t *TLS) settings(d *decoder) []setting {
	return []setting{
		{"cert", func(e entry) { t.Cert, _ = d.text(e) }, textNode(t.Cert)},
		{"key", func(e entry) { t.Key = d.keyFile(e) }, textNode(t.Key)},
		{"client_ca", func(e entry) { t.ClientCA, _ = d.text(e) }, textNode(t.ClientCA)},
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

func (d *decoder) tokens(e entry) (list []Token) {
	items, _ := d.list(e, maxTokens)
	for _, n := range items {
		list = append(list, d.token(n))
	}
	return list
}

func (d *decoder) token(n ast.Node) (t Token) {
	before := len(d.problems)
	hash := ""
	seen := d.settings(n, "a token", "", t.settings(d, &hash))
	wrong := len(d.problems) > before
	d.oneSecret(spanOf(n), "a token", "token", hash, t.Secret, wrong)
	if !seen["role"] && !wrong {
		d.missing(spanOf(n), "give it one of take, read, admin, or a list of them", "the token has no role")
	}
	return t
}

// settings puts the SHA-256 as it is written into hash.
func (t *Token) settings(d *decoder, hash *string) []setting {
	role, sum := texts(t.Roles), node{}
	if len(t.Roles) == 1 {
		role = role.list[0]
	}
	if t.Secret == (Secret{}) {
		sum = textNode(t.Digest())
	}
	return append([]setting{
		{"name", func(e entry) { t.Name = d.short(e) }, textNode(t.Name)},
		{"role", func(e entry) { t.Roles = d.roles(e) }, role},
		{"tenant", func(e entry) { t.Tenant = d.short(e) }, textNode(t.Tenant)},
		{"sha256", func(e entry) { *hash, t.Sum = d.digest(e) }, sum},
	}, t.Secret.settings(d, "token")...)
}

func (d *decoder) roles(e entry) (list []Role) {
	d.texts(e, len(roles), func(e entry) {
		if r := Role(d.oneOf(e, roles...)); r != "" && !slices.Contains(list, r) {
			list = append(list, r)
		}
	})
	return list
}

var digests = regexp.MustCompile(`^(sha256:)?[0-9a-fA-F]{64}$`)

// digest reads the SHA-256 of a secret. Any other value may be the secret itself, so it is not
// shown.
func (d *decoder) digest(e entry) (text string, sum [sha256.Size]byte) {
	n, ok := e.value.(*ast.StringNode)
	switch {
	case ok && digests.MatchString(n.Value):
		sum, _ = parseHash(hashPrefix + n.Value[len(n.Value)-2*sha256.Size:])
		return n.Value, sum
	default:
		d.hideValue(e.value)
		d.problem(spanOf(e.value), `it is what sha256sum prints: printf %s "$TOKEN" | sha256sum; put it in quotes`, "sha256 must be 64 hexadecimal digits")
	}
	return "", sum
}

func (d *decoder) proxies(e entry) (p Proxies) {
	before := len(d.problems)
	d.settings(e.value, "proxies", "", p.settings(d))
	if len(d.problems) == before && len(p.Trusted) == 0 && !p.Unix {
		d.missing(spanOf(e.value), "such as {trusted: [10.0.0.0/8]}", "proxies trusts nobody: it needs trusted or unix")
	}
	return p
}

func (p *Proxies) settings(d *decoder) []setting {
	return []setting{
		{"trusted", func(e entry) { p.Trusted = d.trusted(e) }, networksNode(p.Trusted)},
		{"header", func(e entry) { p.Header = d.header(e) }, textNode(p.Header)},
		{"unix", func(e entry) { p.Unix = d.boolean(e) }, flagNode(p.Unix)},
	}
}

// trusted reads the networks of proxies.
func (d *decoder) trusted(e entry) []netip.Prefix {
	list := d.networks(e)
	for _, p := range list {
		if p.Bits() == 0 {
			d.warn(spanOf(e.value), "name the networks of your proxies", "every client in %s is trusted to name its own address: each can choose whose limit it uses", p)
		}
	}
	return list
}

func (d *decoder) forwardAuth(e entry) (f ForwardAuth) {
	d.settings(e.value, "forward_auth", "", f.settings(d))
	return f
}

func (f *ForwardAuth) settings(d *decoder) []setting {
	return []setting{
		{"status", func(e entry) {
			if f.Status = int(d.integer(e, 1, 999)); f.Status != 0 && !slices.Contains(refusalStatuses, f.Status) {
				d.problem(spanOf(e.value), "", "a refusal cannot be answered with %d: use 401, 403 or 429", f.Status)
			}
		}, numberNode(f.Status)},
		{"allow_away", func(e entry) { f.AllowAway = d.boolean(e) }, flagNode(f.AllowAway)},
		{"shared", func(e entry) { f.Shared = d.policyNames(e) }, texts(f.Shared)},
		{"describe", func(e entry) { f.Describe = d.policyNames(e) }, texts(f.Describe)},
		{"uri_header", func(e entry) { f.URI = d.header(e) }, textNode(f.URI)},
		{"method_header", func(e entry) { f.Method = d.header(e) }, textNode(f.Method)},
		{"host_header", func(e entry) { f.Host = d.header(e) }, textNode(f.Host)},
		{"user_header", func(e entry) { f.User = d.header(e) }, textNode(f.User)},
		{"class_header", func(e entry) { f.Class = d.header(e) }, textNode(f.Class)},
	}
}

// policyNames reads names of policies. finish checks whether they exist.
func (d *decoder) policyNames(e entry) (names []string) {
	d.texts(e, maxTokens, func(e entry) {
		if name, ok := d.text(e); ok {
			names = append(names, name)
		}
	})
	return names
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
		err := t.Secret.lookUp(env, &c.read)
		report("server.tokens", err)
		if err == nil {
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
		report(keySetting(i), c.Gateway.Keys[i].lookUp(env, &c.read))
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
