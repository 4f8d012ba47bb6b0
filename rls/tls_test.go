package rls_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	ratelimit "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/drawgate/drawgate/rls"
	"github.com/drawgate/drawgate/server"
)

// listen serves a service with options, until the test ends.
func listen(t *testing.T, l net.Listener, s *rls.Service, opts *rls.ServerOptions) {
	t.Helper()
	g := rls.NewServer(opts)
	rls.Register(g, s)
	done := make(chan error, 1)
	go func() { done <- g.Serve(l) }()
	t.Cleanup(func() {
		g.Stop()
		<-done
	})
}

func loopback(t *testing.T) net.Listener {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// dial connects to an address; nil credentials are none.
func dial(t *testing.T, addr string, c credentials.TransportCredentials) ratelimit.RateLimitServiceClient {
	t.Helper()
	if c == nil {
		c = insecure.NewCredentials()
	}
	conn, err := grpc.NewClient(addr, grpc.WithTransportCredentials(c))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return ratelimit.NewRateLimitServiceClient(conn)
}

// authority makes certificates for 127.0.0.1.
type authority struct {
	cert *x509.Certificate
	pair tls.Certificate
}

// certificate makes a certificate, by the authority or, if that is nil, by itself.
func certificate(t *testing.T, by *authority) *authority {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	c := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: rand.Text()}, NotAfter: time.Now().Add(time.Hour),
		BasicConstraintsValid: true, IsCA: by == nil, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	parent, signer := c, any(key)
	if by != nil {
		parent, signer = by.cert, by.pair.PrivateKey
	}
	raw, err := x509.CreateCertificate(rand.Reader, c, parent, &key.PublicKey, signer)
	if err != nil {
		t.Fatal(err)
	}
	if c, err = x509.ParseCertificate(raw); err != nil {
		t.Fatal(err)
	}
	return &authority{c, tls.Certificate{Certificate: [][]byte{raw}, PrivateKey: key}}
}

// files writes the certificate and its key as PEM.
func (a *authority) files(t *testing.T) (cert, key string) {
	t.Helper()
	raw, err := x509.MarshalPKCS8PrivateKey(a.pair.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	cert, key = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	err = errors.Join(
		os.WriteFile(cert, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.cert.Raw}), 0o600),
		os.WriteFile(key, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: raw}), 0o600),
	)
	if err != nil {
		t.Fatal(err)
	}
	return cert, key
}

func TestClientCertificates(t *testing.T) {
	t.Parallel()
	ca, stranger := certificate(t, nil), certificate(t, nil)
	caFile, _ := ca.files(t)
	certFile, keyFile := certificate(t, ca).files(t)
	cfg, err := server.LoadTLS(server.TLSFiles{Cert: certFile, Key: keyFile, ClientCA: caFile})
	if err != nil {
		t.Fatal(err)
	}
	s, _ := service(t, memory(t), config(t, users), nil)
	l := loopback(t)
	listen(t, l, s, &rls.ServerOptions{Credentials: credentials.NewTLS(cfg)})
	trusting := func(certificates ...tls.Certificate) credentials.TransportCredentials {
		pool := x509.NewCertPool()
		pool.AddCert(ca.cert)
		return credentials.NewTLS(&tls.Config{RootCAs: pool, Certificates: certificates, MinVersion: tls.VersionTLS12})
	}
	ask := func(c credentials.TransportCredentials) (*ratelimit.RateLimitResponse, error) {
		return dial(t, l.Addr().String(), c).ShouldRateLimit(t.Context(), request("d", descriptor("user=ann")))
	}
	if a, err := ask(trusting(certificate(t, ca).pair)); err != nil || a.GetStatuses()[0].GetLimitRemaining() != 2 {
		t.Errorf("with a certificate: %v, %v", a, err)
	}
	for name, c := range map[string]credentials.TransportCredentials{
		"without one": trusting(), "of another authority": trusting(certificate(t, stranger).pair), "in plaintext": nil,
	} {
		if a, err := ask(c); status.Code(err) != codes.Unavailable {
			t.Errorf("%s: %v, %v", name, a, err)
		}
	}
	if a, err := ask(trusting(certificate(t, ca).pair)); err != nil || a.GetStatuses()[0].GetLimitRemaining() != 1 {
		t.Errorf("clients that were rejected spent something: got %v, %v", a, err)
	}
}
