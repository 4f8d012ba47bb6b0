package server_test

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/drawgate/drawgate/server"
)

// authority makes certificates.
type authority struct {
	t    *testing.T
	dir  string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{t: t, dir: t.TempDir()}
	a.cert, a.key = a.make("authority", true)
	a.write("ca.pem", "CERTIFICATE", a.cert.Raw)
	return a
}

func (a *authority) make(name string, ca bool) (*x509.Certificate, *ecdsa.PrivateKey) {
	a.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		a.t.Fatal(err)
	}
	c := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name},
		NotAfter:              time.Now().Add(time.Hour),
		BasicConstraintsValid: true, IsCA: ca, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	parent, signer := a.cert, a.key
	if parent == nil {
		parent, signer = c, key
	}
	raw, err := x509.CreateCertificate(rand.Reader, c, parent, &key.PublicKey, signer)
	if err != nil {
		a.t.Fatal(err)
	}
	if c, err = x509.ParseCertificate(raw); err != nil {
		a.t.Fatal(err)
	}
	return c, key
}

// issue writes name.pem and name.key.
func (a *authority) issue(name, subject string) {
	a.t.Helper()
	c, key := a.make(subject, false)
	raw, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		a.t.Fatal(err)
	}
	a.write(name+".key", "PRIVATE KEY", raw)
	a.write(name+".pem", "CERTIFICATE", c.Raw)
}

func (a *authority) write(name, kind string, raw []byte) {
	a.t.Helper()
	if err := os.WriteFile(a.path(name), pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: raw}), 0o600); err != nil {
		a.t.Fatal(err)
	}
}

func (a *authority) path(name string) string { return filepath.Join(a.dir, name) }

// client returns a client that trusts the authority, with a certificate of its own if one is named.
func (a *authority) client(name string) *http.Client {
	a.t.Helper()
	pool := x509.NewCertPool()
	pool.AddCert(a.cert)
	c := &tls.Config{RootCAs: pool}
	if name != "" {
		pair, err := tls.LoadX509KeyPair(a.path(name+".pem"), a.path(name+".key"))
		if err != nil {
			a.t.Fatal(err)
		}
		c.Certificates = []tls.Certificate{pair}
	}
	tr := &http.Transport{TLSClientConfig: c, ForceAttemptHTTP2: true, DisableKeepAlives: true}
	a.t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr}
}

// get returns whose certificate the server showed, and the protocol.
func get(t *testing.T, c *http.Client, address string) (subject, proto string, err error) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, address+"/healthz", nil)
	if err != nil {
		t.Fatal(err)
	}
	res, err := c.Do(req)
	if err != nil {
		return "", "", err
	}
	_ = res.Body.Close()
	return res.TLS.PeerCertificates[0].Subject.CommonName, res.Proto, nil
}

func TestTLSFollowsItsFiles(t *testing.T) {
	t.Parallel()
	a := newAuthority(t)
	a.issue("server", "first")
	var log bytes.Buffer
	cfg, err := server.LoadTLS(server.TLSFiles{
		Cert: a.path("server.pem"), Key: a.path("server.key"),
		Logger: slog.New(slog.NewTextHandler(&log, nil)),
	}.Often())
	if err != nil {
		t.Fatal(err)
	}
	f, stop := serve(t, setup{options: &server.Options{TLS: cfg}}.make(t))
	address := strings.Replace(f.url, "http:", "https:", 1)
	who := func(want string) {
		t.Helper()
		if got, proto, err := get(t, a.client(""), address); err != nil || got != want || proto != "HTTP/2.0" {
			t.Errorf("got %q over %s, %v, want %q", got, proto, err, want)
		}
	}
	who("first")
	a.issue("server", "second")
	who("second")
	if err := os.WriteFile(a.path("server.pem"), []byte("half a certifi"), 0o600); err != nil {
		t.Fatal(err)
	}
	who("second")
	who("second")
	a.issue("server", "third")
	who("third")
	if err := stop(); err != nil {
		t.Error(err)
	}
	if text := log.String(); strings.Count(text, "the old one stays") != 1 || strings.Count(text, "is in use") != 2 {
		t.Errorf("log:\n%s", text)
	}
}

func TestClientCertificates(t *testing.T) {
	t.Parallel()
	a, stranger := newAuthority(t), newAuthority(t)
	a.issue("server", "server")
	a.issue("client", "client")
	stranger.issue("client", "client")
	stranger.cert = a.cert // it trusts the server
	cfg, err := server.LoadTLS(server.TLSFiles{
		Cert: a.path("server.pem"), Key: a.path("server.key"),
		ClientCA: a.path("ca.pem"),
	})
	if err != nil {
		t.Fatal(err)
	}
	s := setup{options: &server.Options{TLS: cfg}}.make(t)
	f, stop := serve(t, s)
	address := strings.Replace(f.url, "http:", "https:", 1)
	if _, _, err := get(t, a.client("client"), address); err != nil {
		t.Error(err)
	}
	for name, c := range map[string]*http.Client{
		"without":              a.client(""),
		"of another authority": stranger.client("client"),
	} {
		if _, _, err := get(t, c, address); err == nil {
			t.Errorf("a client %s was served", name)
		}
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
	if err := s.MayListen(&net.TCPAddr{IP: net.IPv4zero}); err != nil {
		t.Errorf("client certificates are enough: %v", err)
	}
}

func TestBadTLSFilesAreReported(t *testing.T) {
	t.Parallel()
	a := newAuthority(t)
	a.issue("one", "one")
	a.issue("two", "two")
	for _, f := range []server.TLSFiles{
		{},
		{Cert: a.path("one.pem")},
		{Cert: a.path("one.pem"), Key: a.path("two.key")},
		{Cert: a.path("no.pem"), Key: a.path("one.key")},
		{Cert: a.path("one.pem"), Key: a.path("one.key"), ClientCA: a.path("no.pem")},
		{Cert: a.path("one.pem"), Key: a.path("one.key"), ClientCA: a.path("one.key")},
	} {
		if _, err := server.LoadTLS(f); err == nil || !strings.HasPrefix(err.Error(), "server: ") {
			t.Errorf("%+v: %v", f, err)
		}
	}
}

func TestOpenOnLoopbackOnly(t *testing.T) {
	t.Parallel()
	any4, loop4, loop6 := &net.TCPAddr{IP: net.IPv4zero, Port: 1}, &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)},
		&net.TCPAddr{IP: net.IPv6loopback}
	unix := &net.UnixAddr{Net: "unix", Name: "/run/drawgate"}
	open, locked, insecure := setup{}.make(t), setup{options: &server.Options{Tokens: tokens()}}.make(t),
		setup{options: &server.Options{Insecure: true}}.make(t)
	for _, c := range []struct {
		s    *server.Server
		addr net.Addr
		ok   bool
	}{
		{open, any4, false},
		{open, &net.TCPAddr{IP: net.IPv4(10, 0, 0, 1)}, false},
		{open, &net.TCPAddr{IP: net.IPv6unspecified}, false},
		{open, loop4, true},
		{open, loop6, true},
		{open, unix, true},
		{locked, any4, true},
		{insecure, any4, true},
	} {
		if err := c.s.MayListen(c.addr); (err == nil) != c.ok {
			t.Errorf("%v: %v", c.addr, err)
		}
	}
	ln, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "0.0.0.0:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	if err := open.Serve(ctx, ln); err == nil || !strings.Contains(err.Error(), "access tokens") {
		t.Errorf("got %v", err)
	}
	if _, err := ln.Accept(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("it listens all the same: %v", err)
	}
}
