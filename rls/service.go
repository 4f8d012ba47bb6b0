// Package rls implements Envoy's rate limit service, version 3, with an engine.
//
// A [Service] answers ShouldRateLimit. All descriptors of a request are one take: if one is
// refused, none is spent. Descriptors of a domain in a [Config], which is read from files in the
// format of envoyproxy/ratelimit, are matched by its trees; those of other domains are attributes
// for the engine's rules. docs/envoy.md lists what is the same as in envoyproxy/ratelimit and what
// differs.
package rls

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	ratelimit "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/engine"
	"github.com/drawgate/drawgate/httplimit"
	"github.com/drawgate/drawgate/internal/failure"
	"github.com/drawgate/drawgate/internal/sampler"
	"github.com/drawgate/drawgate/internal/sleep"
	"github.com/drawgate/drawgate/store"
)

// Service answers Envoy's rate limit requests with an engine. It is safe for concurrent use.
type Service struct {
	ratelimit.UnimplementedRateLimitServiceServer

	engine *engine.Engine
	opts   Options
	draft  *httplimit.Headers
	rates  atomic.Pointer[rates]
	pool   sync.Pool // of *call
	logged sampler.Sampler
	checks checks
}

var _ ratelimit.RateLimitServiceServer = (*Service)(nil)

// rates is a configuration in use, with the limiters of rates that requests used under it.
type rates struct {
	config    *Config
	overrides overrides
}

// New returns a service over e, which the caller closes and which must have the policies of
// opts.Config in force. opts may be nil.
func New(e *engine.Engine, opts *Options) *Service {
	s := &Service{engine: e, pool: sync.Pool{New: func() any { return newCall() }}}
	if opts != nil {
		s.opts = *opts
	}
	if s.opts.Logger == nil {
		s.opts.Logger = slog.New(slog.DiscardHandler)
	}
	s.draft = httplimit.NewHeaders(&httplimit.HeaderOptions{Fields: httplimit.RateLimit})
	s.Use(s.opts.Config)
	return s
}

// Use puts another configuration in force; nil means none. Its policies must already be in force in
// the engine; policies that are no longer needed may be removed from the engine afterwards. A
// request that arrives in between is retried for a few milliseconds, so the engine and the service
// need not change at the same instant.
func (s *Service) Use(c *Config) { s.rates.Store(&rates{config: c}) }

// Attempts for a request whose policies are not in the engine: a new configuration is about to
// come.
const (
	unknownAttempts = 4
	unknownPause    = 5 * time.Millisecond
)

// ShouldRateLimit decides a request. The status of an error is INVALID_ARGUMENT for a request
// without a domain or descriptors, or with too many; FAILED_PRECONDITION for a refund if they are
// not allowed; and UNAVAILABLE if the store did not decide: then Envoy's failure_mode_deny decides.
// Each error is logged, at most one in 10 s, and passed to [Options.Undecided]. Descriptors without
// a limit are OK.
func (s *Service) ShouldRateLimit(ctx context.Context, r *ratelimit.RateLimitRequest) (*ratelimit.RateLimitResponse,
	error,
) {
	if err := check(r); err != nil {
		return s.failed(r, err)
	}
	answer, err := s.decide(ctx, r)
	for range unknownAttempts - 1 {
		if !errors.Is(err, engine.ErrUnknownPolicy) || !sleep.For(ctx, unknownPause) {
			break
		}
		answer, err = s.decide(ctx, r)
	}
	if err == nil {
		return answer, nil
	}
	return s.failed(r, err)
}

// check refuses requests that no configuration could decide.
func check(r *ratelimit.RateLimitRequest) error {
	switch {
	case r.GetDomain() == "":
		return status.Error(codes.InvalidArgument, "rls: the request has no domain")
	case len(r.GetDescriptors()) == 0:
		return status.Error(codes.InvalidArgument, "rls: the request has no descriptors")
	case len(r.GetDescriptors()) > MaxDescriptors:
		return status.Errorf(codes.InvalidArgument, "rls: the request has %d descriptors, but at most %d are allowed",
			len(r.GetDescriptors()), MaxDescriptors)
	}
	return nil
}

func (s *Service) decide(ctx context.Context, r *ratelimit.RateLimitRequest) (*ratelimit.RateLimitResponse, error) {
	c := s.pool.Get().(*call)
	defer func() {
		c.clear()
		s.pool.Put(c)
	}()
	c.s, c.request, c.rates = s, r, s.rates.Load()
	answer, err := c.byDomain(ctx)
	if err == nil && c.fallback && s.opts.StoreErrors {
		return nil, errFallback
	}
	return answer, err
}

// errFallback is the error for a decision by a fallback, if that counts as an error.
var errFallback = fmt.Errorf("rls: %w: its fallback decided, which envoy.on_store_failure treats as an error",
	drawgate.ErrStoreUnavailable)

// byDomain decides with the tree of the request's domain, or with rules if it has none.
func (c *call) byDomain(ctx context.Context) (*ratelimit.RateLimitResponse, error) {
	if c.rates.config != nil {
		if d := c.rates.config.domains[c.request.GetDomain()]; d != nil {
			return c.byTree(ctx, d)
		}
	}
	return c.byRules(ctx)
}

// failed counts and logs a request that was not decided, and converts its error to a status.
func (s *Service) failed(r *ratelimit.RateLimitRequest, err error) (*ratelimit.RateLimitResponse, error) {
	answer := statusOf(err)
	code := status.Code(answer)
	if s.opts.Undecided != nil {
		s.opts.Undecided(code)
	}
	if code == codes.Canceled {
		return nil, answer
	}
	s.log(r.GetDomain(), err)
	if _, isStatus := status.FromError(err); s.opts.Shadow && !isStatus {
		return ok(len(r.GetDescriptors())), nil
	}
	return nil, answer
}

// statusOf returns the status for the caller.
func statusOf(err error) error {
	if _, ok := status.FromError(err); ok {
		return err
	}
	code := codes.Unavailable
	switch kind := failure.Of(err); {
	case kind == failure.Cancelled:
		return status.Error(codes.Canceled, "rls: the caller cancelled the request")
	case kind == failure.Invalid, kind == failure.UnknownUnit, errors.Is(err, engine.ErrTooMany):
		code = codes.InvalidArgument
	case kind == failure.NeedsReserve:
		code = codes.FailedPrecondition
	}
	return status.Error(code, public(err))
}

// public returns the text for the caller, without addresses and keys.
func public(err error) string {
	switch kind := failure.Of(err); {
	case kind.Undecided() && kind != failure.Closed:
		return "rls: the store did not decide"
	case errors.Is(err, engine.ErrUnknownPolicy):
		return "rls: the engine does not have the policies of the configuration"
	case errors.Is(err, engine.ErrTooMany):
		return fmt.Sprintf("rls: the descriptors need more than %d buckets at once", store.MaxBuckets)
	case kind == failure.NeedsReserve:
		return "rls: a policy of the request has a concurrency limit, which this protocol cannot release"
	case kind == failure.Invalid, kind == failure.UnknownUnit:
		return "rls: the request cannot be decided: " + err.Error()
	}
	return "rls: the request could not be decided"
}

// logEvery is how often failures are logged.
const logEvery = 10 * time.Second

func (s *Service) log(domain string, err error) {
	if quiet, ok := s.logged.Pass(time.Now(), logEvery, 1); ok {
		s.opts.Logger.Warn("a rate limit request was not decided as asked", "domain", domain, "err", err, "suppressed",
			quiet)
	}
}
