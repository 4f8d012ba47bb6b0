package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptrace"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/api"
	"github.com/drawgate/drawgate/client"
	"github.com/drawgate/drawgate/engine"
)

// The variables that name a server to ask instead of a store.
const (
	envServer = "DRAWGATE_SERVER"
	envToken  = "DRAWGATE_TOKEN"
)

// serverURL returns the server to ask, or "" if the command opens the store itself.
func (a *app) serverURL() string {
	if a.flags.Store != "" && a.server == "" {
		return "" // the command line takes precedence over the environment
	}
	return cmp.Or(a.server, os.Getenv(envServer))
}

// client returns a client of the server. The token is never an argument, which other users of the
// machine could read.
func (a *app) client() (*client.Client, error) {
	notice := &unreachedNotice{a: a, base: http.DefaultTransport}
	c, err := client.New(a.serverURL(), &client.Options{
		Token:      os.Getenv(envToken),
		HTTPClient: &http.Client{Transport: notice},
	})
	if err != nil {
		return nil, usage("%s", strings.TrimPrefix(err.Error(), "client: "))
	}
	return c, nil
}

// unreached is how long a command tries to reach a server before it says so.
const unreached = time.Second

// unreachedNotice says once if a server cannot be reached for a while: the client tries again for
// several seconds, and people should not wait without knowing for what.
type unreachedNotice struct {
	a     *app
	base  http.RoundTripper
	begun sync.Once
	timer *time.Timer
}

// RoundTrip implements [http.RoundTripper].
func (p *unreachedNotice) RoundTrip(r *http.Request) (*http.Response, error) {
	p.begun.Do(func() {
		p.timer = time.AfterFunc(unreached, func() {
			p.a.warnf("%s cannot be reached yet; trying again …",
				p.a.serverURL())
		})
	})
	trace := &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { p.timer.Stop() }}
	return p.base.RoundTrip(r.WithContext(httptrace.WithClientTrace(r.Context(), trace)))
}

// CloseIdleConnections closes them, and ends the wait.
func (p *unreachedNotice) CloseIdleConnections() {
	p.begun.Do(func() { p.timer = time.NewTimer(0) })
	p.timer.Stop()
	if c, ok := p.base.(interface{ CloseIdleConnections() }); ok {
		c.CloseIdleConnections()
	}
}

// remoteError gives an error of a server its exit code.
func remoteError(err error) error {
	if err == nil {
		return nil
	}
	code := exitUsage
	switch client.Code(err) {
	case "", api.CodeStoreUnavailable, api.CodeClosing: // there was no answer, or no decision
		code = exitUnavailable
		if _, ok := errors.AsType[*client.Error](err); ok {
			err = fmt.Errorf("%s: is a drawgate server running there? The address is that of --server or $%s",
				strings.TrimPrefix(err.Error(), "client: "), envServer)
		}
	case api.CodeUnauthorized:
		return &exitError{exitConfig, fmt.Errorf("%w: set %s to an access token of the server", err, envToken)}
	case api.CodeForbidden, api.CodeNotReloaded, api.CodeNotSupported, api.CodeCrossOrigin, api.CodeNotFound:
		code = exitConfig
	}
	return &exitError{code, err}
}

// adminError is remoteError for requests to an address for administrators.
func adminError(err error) error {
	if client.Code(err) == api.CodeNotFound {
		err = fmt.Errorf("%w: name the server's address for administrators with --server, such as --server http://127.0.0.1:%s; "+
			"if it is that, update the server: its version does not have this yet", err, adminPort)
	}
	return remoteError(err)
}

// wire converts the flags to a request to a server.
func (f *askFlags) wire(ctx context.Context, cmd *cobra.Command, a *app, c *client.Client) (t api.Take, err error) {
	r, err := f.plain()
	if err != nil {
		return t, err
	}
	costs, err := f.cost(cmd.Flags().Changed("requests"))
	if err != nil {
		return t, err
	}
	t = api.Take{Priority: f.priority, WaitMS: f.wait.Milliseconds()}
	for _, l := range r.Labels {
		if t.Labels == nil {
			t.Labels = map[string]string{}
		}
		t.Labels[l.Name] = l.Value
	}
	if len(f.buckets) == 0 {
		t.Bucket = api.Bucket{Policy: f.policy, Tenant: a.tenant, Key: f.key, Costs: costsOf(costs)}
		return t, nil
	}
	var policies []api.Policy
	asks, err := f.several(cmd, a.tenant, costs, func(policy string) (func(string) bool, error) {
		if len(costs) > 0 && policies == nil { // the server knows which units they count
			if policies, err = c.Policies(ctx); err != nil {
				return nil, remoteError(err)
			}
		}
		return func(unit string) bool { return countsUnit(policies, policy, unit) }, nil
	})
	for _, ask := range asks {
		t.Buckets = append(t.Buckets, api.Bucket{
			Policy: ask.Policy, Tenant: ask.Tenant, Key: ask.Key,
			Costs: costsOf(ask.Costs),
		})
	}
	return t, err
}

func countsUnit(policies []api.Policy, policy, unit string) bool {
	return slices.ContainsFunc(policies, func(p api.Policy) bool {
		return p.Name == policy && slices.ContainsFunc(p.Limits, func(l api.LimitSpec) bool { return l.Unit == unit })
	})
}

func costsOf(costs []drawgate.Cost) api.Costs {
	if len(costs) == 0 {
		return nil
	}
	m := api.Costs{}
	for _, c := range costs {
		m[c.Unit] += c.N
	}
	return m
}

func (a *app) takeRemote(ctx context.Context, cmd *cobra.Command, f *askFlags) error {
	c, err := a.client()
	if err != nil {
		return err
	}
	defer c.Close()
	t, err := f.wire(ctx, cmd, a, c)
	if err != nil {
		return err
	}
	shown, end := a.showWait(ctx)
	w, err := c.Take(shown, t)
	end()
	if client.Code(err) == api.CodeNeedsHold {
		return usage("%s: use drawgate run -- COMMAND", err)
	} else if err != nil {
		return remoteError(err)
	}
	a.answer(w)
	if !w.Allowed {
		return done(exitRefused)
	}
	return nil
}

// held is a reservation, made in a store or by a server.
type held interface {
	Deadline() time.Time
	Renew(ctx context.Context, hold time.Duration) error
	Settle(ctx context.Context) error
	Cancel(ctx context.Context) error
	answer() *api.Answer // as it was granted
	free() bool          // nothing is held, because no limit applies
}

// farOff is the time until the end of a hold if nothing is held. Nothing can be lost then, however
// long the command runs.
const farOff = drawgate.MaxHold

// heldHere is a reservation in a store. If no policy is enforced, it holds only for shadows.
type heldHere struct {
	*engine.Result
	w api.Answer
}

func (h heldHere) Settle(ctx context.Context) error { return h.Result.Settle(ctx) }
func (h heldHere) answer() *api.Answer              { return &h.w }
func (h heldHere) free() bool                       { return h.Reservation == nil }
func (h heldHere) Deadline() time.Time {
	if h.free() {
		return time.Now().Add(farOff)
	}
	return h.Reservation.Deadline()
}

// heldThere is a reservation that a server made.
type heldThere struct{ *client.Reservation }

func (h heldThere) answer() *api.Answer { return &h.Answer }
func (h heldThere) free() bool          { return h.Answer.Reservation == "" }
func (h heldThere) Deadline() time.Time {
	if h.free() {
		return time.Now().Add(farOff)
	}
	return h.Reservation.Deadline()
}
func (h heldThere) Settle(ctx context.Context) error { return gone(h.Reservation.Settle(ctx, nil)) }
func (h heldThere) Cancel(ctx context.Context) error { return gone(h.Reservation.Cancel(ctx)) }
func (h heldThere) Renew(ctx context.Context, hold time.Duration) error {
	return gone(h.Reservation.Renew(ctx, hold))
}

func gone(err error) error {
	if errors.Is(err, client.ErrGone) {
		return drawgate.ErrGone
	}
	return err
}

// reserveThere takes units by a server. It prints a refusal.
func (a *app) reserveThere(ctx context.Context, cmd *cobra.Command, f *runFlags) (held, error) {
	c, err := a.client()
	if err != nil {
		return nil, err
	}
	t, err := f.wire(ctx, cmd, a, c)
	if err != nil {
		return nil, err
	}
	t.HoldMS = f.hold.Milliseconds()
	shown, end := a.showWait(ctx)
	res, w, err := c.Reserve(shown, t)
	end()
	if err != nil {
		c.Close() // Close waits until a hold that may exist is cancelled
		return nil, remoteError(err)
	}
	if res == nil {
		a.refused(w)
		return nil, done(exitRefused)
	}
	return heldThere{res}, nil
}
