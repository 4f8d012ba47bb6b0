// Package client is a client for a Drawgate server: see package api for the protocol, and
// docs/client.md for a tour.
//
//	c, err := client.New("http://127.0.0.1:7878", nil)
//	a, err := c.Take(ctx, api.Take{Bucket: api.Bucket{Policy: "api", Key: "user-17"}})
//	if !a.Allowed { // a.RetryAfterMS says when
//
// A refusal is an answer and not an error. An error is an [*api.Problem] if the server answered
// that it could not decide, and an [*Error] if there was no usable answer.
//
// Calls that are safe to repeat are sent again, within the caller's context: queries, settlements,
// and takes with an ID, by their grant. A plain take is sent once: if its answer is lost, its units
// may or may not be spent.
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

// Options holds the optional settings of a Client. The zero value is ready to use.
type Options struct {
	// Token is the access token; "" sends none.
	Token string
	// HTTPClient sends the requests; nil means a client with up to 256 idle connections. Redirects
	// are never followed: use the new address of a server that has moved.
	HTTPClient *http.Client
	// Timeout bounds one attempt, in addition to the time that a take may wait: 0 means 10s,
	// negative means that only the caller's context bounds it.
	Timeout time.Duration
	// Attempts is the maximum number of times that a call that is safe to repeat is sent: 0 means
	// 4, 1 means once.
	Attempts int
}

const (
	defaultTimeout  = 10 * time.Second
	defaultAttempts = 4
	idleConns       = 256
)

// Client calls one server, or several behind one address. It is safe for concurrent use.
type Client struct {
	base     string // without a slash at the end
	token    string
	http     *http.Client
	timeout  time.Duration
	attempts int

	slots    chan struct{} // for cancellations in the background
	givingUp sync.WaitGroup
}

// New returns a client for the server at baseURL, such as http://127.0.0.1:7878. opts may be nil.
func New(baseURL string, opts *Options) (*Client, error) {
	u, err := url.Parse(baseURL)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return nil, fmt.Errorf("client: %q is not the address of a server: give one such as http://127.0.0.1:7878",
			redact(baseURL))
	}
	if u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return nil, errors.New("client: the address of a server must not have a user, query or fragment: put an access token into Options.Token")
	}
	if opts == nil {
		opts = &Options{}
	}
	c := &Client{
		base: strings.TrimRight(u.String(), "/"), token: opts.Token, timeout: opts.Timeout,
		attempts: opts.Attempts, slots: make(chan struct{}, maxGiveUps),
	}
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

// transport returns the default transport, with as many connections to one server as it has in
// total.
func transport() http.RoundTripper {
	t, ok := http.DefaultTransport.(*http.Transport)
	if !ok {
		return http.DefaultTransport
	}
	t = t.Clone()
	t.MaxIdleConns, t.MaxIdleConnsPerHost = idleConns, idleConns
	return t
}

// redact removes a possible password.
func redact(address string) string {
	if u, err := url.Parse(address); err == nil {
		return u.Redacted()
	}
	return "…"
}

// Close waits, for a few seconds at most, until takes that were given up are cancelled, and closes
// idle connections. Call it after all other calls have returned.
func (c *Client) Close() {
	c.givingUp.Wait()
	c.http.CloseIdleConnections()
}
