// Package client asks a Drawgate server: see package api for what it says, and docs/client.md for a
// tour.
//
//	c, err := client.New("http://127.0.0.1:7878", nil)
//	a, err := c.Take(ctx, api.Take{Bucket: api.Bucket{Policy: "api", Key: "user-17"}})
//	if !a.Allowed { // a.RetryAfterMS says when
//
// A refusal is an answer and no error. An error is an [*api.Problem] if the server answered that it
// could not decide, and an [*Error] if nobody answered.
//
// What is safe to be sent again is sent again, within the caller's context: questions, settlements,
// takes with an id, by their grant. A plain take is sent once: if its answer is lost, its units may
// be spent, and nobody knows.
package client

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"
)

// Options holds what a Client can do without. The zero value is ready to use.
type Options struct {
	// Token is the access token; "" sends none.
	Token string
	// HTTPClient sends the requests; nil is one of our own, which keeps up to 256 connections.
	// Redirects are not followed, whatever it says: a server that moved has to be named.
	HTTPClient *http.Client
	// Timeout bounds one attempt, beside the time that a take may wait: 0 means 10s, negative means
	// that only the caller's context bounds it.
	Timeout time.Duration
	// Attempts bounds how often what is safe to be sent again is sent: 0 means 4, 1 means once.
	Attempts int
}

const (
	defaultTimeout  = 10 * time.Second
	defaultAttempts = 4
	idleConns       = 256
)

// Client asks one server, or several behind one address. It is safe for concurrent use.
type Client struct {
	base     string // without a slash at the end
	token    string
	http     *http.Client
	timeout  time.Duration
	attempts int

	slots    chan struct{} // of what is cancelled in the background
	givingUp sync.WaitGroup
}

// New returns a client of the server at baseURL, such as http://127.0.0.1:7878. opts may be nil.
func New(baseURL string, opts *Options) (*Client, error) {
	u, err := url.Parse(baseURL)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return nil, fmt.Errorf("client: %q is not the address of a server: give one such as http://127.0.0.1:7878", redact(baseURL))
	}
	if u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return nil, errors.New("client: the address of a server has no user, query or fragment: an access token goes into Options.Token")
	}
	if opts == nil {
		opts = &Options{}
	}
	c := &Client{base: strings.TrimRight(u.String(), "/"), token: opts.Token, timeout: opts.Timeout, attempts: opts.Attempts, slots: make(chan struct{}, maxGiveUps)}
	if c.timeout == 0 {
		c.timeout = defaultTimeout
	}
	if c.attempts <= 0 {
		c.attempts = defaultAttempts
	}
	hc := http.Client{Transport: transport()}
	if opts.HTTPClient != nil {
		hc = *opts.HTTPClient
	}
	hc.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	c.http = &hc
	return c, nil
}

// transport returns the default one with as many connections to one server as it has to several.
func transport() http.RoundTripper {
	t, ok := http.DefaultTransport.(*http.Transport)
	if !ok {
		return http.DefaultTransport
	}
	t = t.Clone()
	t.MaxIdleConns, t.MaxIdleConnsPerHost = idleConns, idleConns
	return t
}

// redact removes what may be a password.
func redact(address string) string {
	if u, err := url.Parse(address); err == nil {
		return u.Redacted()
	}
	return "…"
}

// Close waits until the takes that were given up are cancelled, for a few seconds at most, and
// closes the connections that are not in use. It may be called once all other calls have returned.
func (c *Client) Close() {
	c.givingUp.Wait()
	c.http.CloseIdleConnections()
}
