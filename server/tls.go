package server

import (
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/drawgate/drawgate/internal/regular"
)

// TLSFiles names the files of a server's certificate.
type TLSFiles struct {
	Cert string // PEM: the certificate, and any intermediate certificates
	Key  string // PEM: its key
	// PEM: authorities for client certificates. If set, clients must have a certificate from one of
	// them (mTLS)
	ClientCA string
	Logger   *slog.Logger // nil discards

	every time.Duration // shortest time between checks for changes; 0: a second
}

// recheck is the default time between checks for changes.
const recheck = time.Second

// LoadTLS returns a configuration for Options.TLS. Changed files are read again for the next
// connection, at most once a second, so a new certificate needs no restart. If the new files cannot
// be read or do not match, the old ones stay in use, and each change is logged once.
func LoadTLS(f TLSFiles) (*tls.Config, error) {
	if f.Cert == "" || f.Key == "" {
		return nil, errors.New("server: TLS needs a certificate and a key file")
	}
	if f.Logger == nil {
		f.Logger = slog.New(slog.DiscardHandler)
	}
	c := &certificates{files: f, seen: f.stamp()}
	var err error
	if c.now, err = f.load(); err != nil {
		return nil, err
	}
	c.checked = time.Now()
	outer := c.now.Clone()
	outer.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) { return c.current(), nil }
	return outer, nil
}

// certificates is a configuration that follows its files. It is safe for concurrent use.
type certificates struct {
	files TLSFiles

	mu      sync.Mutex
	now     *tls.Config // guarded by mu
	seen    [3]stamp    // guarded by mu: versions of the files of now, or of the last failure
	checked time.Time   // guarded by mu
}

// stamp identifies the version of a file.
type stamp struct {
	mod  time.Time
	size int64
}

func (f *TLSFiles) stamp() (all [3]stamp) {
	for i, name := range []string{f.Cert, f.Key, f.ClientCA} {
		if info, err := os.Stat(name); err == nil {
			all[i] = stamp{info.ModTime(), info.Size()}
		}
	}
	return all
}

// current returns the newest complete configuration.
func (c *certificates) current() *tls.Config {
	c.mu.Lock()
	defer c.mu.Unlock()
	if time.Since(c.checked) < cmp.Or(c.files.every, recheck) {
		return c.now
	}
	c.checked = time.Now()
	seen := c.files.stamp()
	if seen == c.seen {
		return c.now
	}
	c.seen = seen
	fresh, err := c.files.load()
	if err != nil { // a certificate and its key are two files: the other one may be about to change
		c.files.Logger.Warn("the new certificate is not used; the old one stays", "error", err)
		return c.now
	}
	c.files.Logger.Info("the new certificate is in use", "file", c.files.Cert)
	c.now = fresh
	return c.now
}

func (f *TLSFiles) load() (*tls.Config, error) {
	cert, err := regular.ReadFile(f.Cert)
	if err != nil {
		return nil, fmt.Errorf("server: the certificate: %w", err)
	}
	key, err := regular.ReadFile(f.Key)
	if err != nil {
		return nil, fmt.Errorf("server: the certificate's key: %w", err)
	}
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		return nil, fmt.Errorf("server: certificate %s and key %s: %w", f.Cert, f.Key, err)
	}
	c := &tls.Config{
		Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12,
		NextProtos: []string{"h2", "http/1.1"},
	}
	if f.ClientCA == "" {
		return c, nil
	}
	pem, err := regular.ReadFile(f.ClientCA)
	if err != nil {
		return nil, fmt.Errorf("server: the authorities of client certificates: %w", err)
	}
	c.ClientCAs, c.ClientAuth = x509.NewCertPool(), tls.RequireAndVerifyClientCert
	if !c.ClientCAs.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("server: %s has no PEM certificate", f.ClientCA)
	}
	return c, nil
}
