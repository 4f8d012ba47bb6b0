//go:build unix

package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/credentials"

	"github.com/drawgate/drawgate/api"
)

// authority makes certificates.
type authority struct {
	b    bench
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// newAuthority writes NAME.pem.
func newAuthority(b bench, name string) *authority {
	b.t.Helper()
	a := &authority{b: b}
	a.cert, a.key = a.make(true)
	b.write(name+".pem", encoded("CERTIFICATE", a.cert.Raw))
	return a
}

func (a *authority) make(ca bool) (*x509.Certificate, *ecdsa.PrivateKey) {
	a.b.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		a.b.t.Fatal(err)
	}
	c := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: "test"},
		NotAfter:              time.Now().Add(time.Hour),
		BasicConstraintsValid: true, IsCA: ca, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	parent, signer := a.cert, a.key
	if parent == nil {
		parent, signer = c, key
	}
	raw, err := x509.CreateCertificate(rand.Reader, c, parent, &key.PublicKey, signer)
	if err == nil {
		c, err = x509.ParseCertificate(raw)
	}
	if err != nil {
		a.b.t.Fatal(err)
	}
	return c, key
}

// issue writes NAME.pem and NAME.key, and returns both.
func (a *authority) issue(name string) tls.Certificate {
	a.b.t.Helper()
	c, key := a.make(false)
	raw, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		a.b.t.Fatal(err)
	}
	cert, secret := encoded("CERTIFICATE", c.Raw), encoded("PRIVATE KEY", raw)
	a.b.write(name+".pem", cert)
	a.b.write(name+".key", secret)
	pair, err := tls.X509KeyPair([]byte(cert), []byte(secret))
	if err != nil {
		a.b.t.Fatal(err)
	}
	return pair
}

// trusting returns the TLS configuration of clients that trust the authority.
func (a *authority) trusting(own ...tls.Certificate) *tls.Config {
	pool := x509.NewCertPool()
	pool.AddCert(a.cert)
	return &tls.Config{RootCAs: pool, Certificates: own}
}

func encoded(kind string, raw []byte) string {
	return string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: raw}))
}

// guarded is a configuration with every kind of access control. The secret of each token is its
// name, repeated.
func guarded() string {
	text := `
store: "memory:"
policies: {api: {limits: [{name: rpd, rolling: 24h, amount: 1000}]}}
server:
  tls: {cert: server.pem, key: server.key, client_ca: ca.pem}
  tokens:
    - {name: operator, role: admin, token_env: OPERATOR}
`
	for name, role := range map[string]string{
		"taker": "take", "reader": "read", "both": "[take, read]",
		"tenant": "take, tenant: acme",
	} {
		text += fmt.Sprintf("    - {name: %s, role: %s, sha256: %x}\n", name, role,
			sha256.Sum256([]byte(secretOf(name))))
	}
	return text
}

func secretOf(name string) string { return strings.Repeat(name, 5) }

// On all listeners, certificates and access tokens decide who may do what.
//
// req: B11
func TestServeChecksCertificatesAndTokens(t *testing.T) {
	t.Parallel()
	b := newBench(t, "OPERATOR="+secretOf("operator"))
	ca, otherCA := newAuthority(b, "ca"), newAuthority(b, "strange")
	ca.issue("server")
	client, stranger := ca.issue("client"), otherCA.issue("stranger")
	b.write("drawgate.yaml", guarded())
	d := b.daemon()
	d.http.Transport = &http.Transport{TLSClientConfig: ca.trusting(client)}
	tokensDecide(d)
	for name, own := range map[string][]tls.Certificate{"without": nil, "of another authority": {stranger}} {
		tr := &http.Transport{TLSClientConfig: ca.trusting(own...), DisableKeepAlives: true}
		for _, address := range []string{d.public, d.admin} {
			if resp, err := (&http.Client{Transport: tr}).Get(address + "/healthz"); err == nil {
				resp.Body.Close()
				t.Errorf("a certificate %s: %s at %s", name, resp.Status, address)
			}
		}
		if a, err := d.envoy(credentials.NewTLS(ca.trusting(own...))).ShouldRateLimit(short(t),
			hit("ip", "192.0.2.1")); err == nil {
			t.Errorf("a certificate %s: gRPC answers %v", name, a)
		}
	}
	for _, address := range []string{d.public, d.admin} {
		if resp, err := http.Get(strings.Replace(address, "https:", "http:", 1) + "/healthz"); err == nil {
			if resp.Body.Close(); resp.StatusCode == http.StatusOK {
				t.Errorf("%s answers in the clear", address)
			}
		}
	}
	if a, err := d.envoy(nil).ShouldRateLimit(short(t), hit("ip", "192.0.2.1")); err == nil {
		t.Errorf("gRPC answers in the clear: %v", a)
	}
	if _, err := d.envoy(credentials.NewTLS(ca.trusting(client))).ShouldRateLimit(short(t),
		hit("ip", "192.0.2.1")); err != nil {
		t.Errorf("gRPC with a certificate: %v", err)
	}
	for _, name := range []string{"operator", "taker", "reader", "tenant"} {
		if strings.Contains(d.log.String(), secretOf(name)) {
			t.Errorf("the log shows the token of %s", name)
		}
	}
}

// tokensDecide makes the requests of each role with each token.
func tokensDecide(d *daemon) {
	d.t.Helper()
	take := func(tenant string) api.Take {
		return api.Take{Bucket: api.Bucket{Policy: "api", Tenant: tenant, Key: "k"}}
	}
	paths := []struct {
		url  string
		body any
	}{
		{d.public + "/v1/take", take("")},
		{d.public + "/v1/take", take("acme")},
		{d.public + "/v1/take", take("other")},
		{d.public + "/v1/status?policy=api&key=k", nil},
		{d.admin + "/metrics", nil},
		{d.admin + "/v1/reset", api.ResetRequest{Policy: "api", Key: "k"}},
		{d.public + "/healthz", nil},
	}
	for name, want := range map[string][]int{
		"":         {401, 401, 401, 401, 401, 401, 200},
		"nobody":   {401, 401, 401, 401, 401, 401, 200},
		"taker":    {200, 200, 200, 403, 403, 403, 200},
		"reader":   {403, 403, 403, 200, 200, 403, 200},
		"both":     {200, 200, 200, 200, 200, 403, 200},
		"operator": {200, 200, 200, 200, 200, 200, 200},
		"tenant":   {200, 200, 403, 403, 403, 403, 200},
	} {
		var headers []string
		if name != "" {
			headers = []string{"Authorization: Bearer " + secretOf(name)}
		}
		for i, p := range paths {
			if r := d.must(p.url, p.body, headers...); r.code != want[i] {
				d.t.Errorf("token %q, %s %v: %d, want %d: %s", name, p.url, p.body, r.code, want[i], r.body)
			}
		}
	}
}
