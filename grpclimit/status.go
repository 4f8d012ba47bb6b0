package grpclimit

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/protoadapt"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/internal/admit"
	"github.com/drawgate/drawgate/internal/failure"
)

// The metadata of an answer. They are headers of HTTP/2, named as package httplimit names them.
const (
	// units per window of the described limit: the one that refuses longest, or else the one with
	// the smallest part left.
	MetadataLimit     = "x-ratelimit-limit"
	MetadataRemaining = "x-ratelimit-remaining" // units that are left of that limit now
	// Unix seconds at which the limit is unused again, or its calendar window ends.
	MetadataReset    = "x-ratelimit-reset"
	MetadataFallback = "x-ratelimit-fallback" // "true": decided without the store
	MetadataRetry    = "retry-after"          // seconds, on refusals after which waiting helps
)

// describe returns the metadata for a decision.
func describe(d *drawgate.Decision, quiet bool) metadata.MD {
	md := metadata.MD{}
	if d.Fallback {
		md[MetadataFallback] = []string{"true"}
	}
	if after, ok := admit.RetryAfter(d); ok {
		md[MetadataRetry] = []string{strconv.FormatInt(admit.Seconds(after), 10)}
	}
	if quiet {
		return md
	}
	l, ok := d.Refusing()
	if !ok {
		l, ok = d.Tightest()
	}
	if ok {
		md[MetadataLimit] = []string{strconv.FormatInt(l.Limit.Amount, 10)}
		md[MetadataRemaining] = []string{strconv.FormatInt(l.Remaining, 10)}
		if l.Limit.Kind != drawgate.Concurrency {
			md[MetadataReset] = []string{strconv.FormatInt(admit.Seconds(time.Duration(l.ResetAt().UnixNano())), 10)}
		}
	}
	return md
}

// refusal is the status of a call that is refused.
func refusal(d *drawgate.Decision, full bool) error {
	text := "rate limit exceeded"
	quota := &errdetails.QuotaFailure{}
	for l := range d.Limits() {
		if l.Refused() {
			quota.Violations = append(quota.Violations, violation(l.Policy, l.Limit))
		}
	}
	if l, ok := d.Refusing(); ok {
		text = fmt.Sprintf("rate limit exceeded: limit %q of policy %q", l.Limit.Name, l.Policy)
	}
	if d.Reason == drawgate.Paused { // no limit is the reason
		text, quota.Violations = "calls like this one are paused", nil
	}
	if full {
		text += ", and too many calls are already waiting"
	}
	var details []protoadapt.MessageV1
	if len(quota.GetViolations()) > 0 || d.Reason != drawgate.Paused {
		details = append(details, protoadapt.MessageV1Of(quota))
	}
	if after, ok := admit.RetryAfter(d); ok {
		details = append(details, protoadapt.MessageV1Of(&errdetails.RetryInfo{RetryDelay: durationpb.New(after)}))
	}
	return withDetails(status.New(codes.ResourceExhausted, text), details...)
}

// violation names a limit. It leaves out the key, which may be a secret.
func violation(policy string, l *drawgate.Limit) *errdetails.QuotaFailure_Violation {
	unit := l.Unit
	if unit == "" {
		unit = drawgate.UnitRequests
	}
	return &errdetails.QuotaFailure_Violation{
		Subject: "policy:" + policy, Description: fmt.Sprintf("limit %q of %d %s is used up", l.Name, l.Amount, unit),
		QuotaId: l.Name, QuotaMetric: unit, QuotaValue: l.Amount,
	}
}

func withDetails(s *status.Status, details ...protoadapt.MessageV1) error {
	if with, err := s.WithDetails(details...); err == nil {
		return with.Err()
	}
	return s.Err() // without details the answer is the same
}

// failed returns the status of a call that could not be decided, or nil if the call may run.
func (l *Limit) failed(ctx context.Context, method string, err error, set func(metadata.MD)) error {
	never, isNever := errors.AsType[*drawgate.NeverFitsError](err)
	switch {
	case isNever:
		quota := &errdetails.QuotaFailure{Violations: []*errdetails.QuotaFailure_Violation{{
			Subject: "policy:" + never.Policy,
			Description: fmt.Sprintf("the call costs %d %s, but limit %q never grants more than %d", never.N,
				never.Unit, never.Limit, never.Max),
			QuotaId: never.Limit, QuotaMetric: never.Unit, QuotaValue: never.Max,
		}}}
		return withDetails(status.New(codes.ResourceExhausted,
			"the call costs more than a limit ever allows: waiting does not help"), protoadapt.MessageV1Of(quota))
	case ctx.Err() != nil:
		return status.FromContextError(ctx.Err()).Err()
	case failure.Of(err).Undecided():
		l.report(ctx, method, err)
		if l.opts.FailOpen {
			set(metadata.MD{MetadataFallback: []string{"true"}})
			return nil
		}
		return withDetails(status.New(codes.Unavailable, "the rate limit could not be checked"),
			protoadapt.MessageV1Of(&errdetails.RetryInfo{RetryDelay: durationpb.New(time.Second)}))
	}
	l.report(ctx, method, err)
	return status.Error(codes.Internal, "the rate limit is configured wrongly")
}
