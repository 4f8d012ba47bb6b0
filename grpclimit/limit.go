// Package grpclimit has server interceptors for google.golang.org/grpc. They take units from
// drawgate buckets for each call before its handler runs. A refused call gets RESOURCE_EXHAUSTED,
// with RetryInfo and QuotaFailure as details.
//
//	lim, err := drawgate.New(memstore.New(nil), drawgate.PerMinute("calls", 10), nil)
//	limit, err := grpclimit.New([]grpclimit.Bucket{{Limiter: lim, Key: grpclimit.ByPeer(nil)}}, nil)
//	grpc.NewServer(grpc.UnaryInterceptor(limit.Unary), grpc.StreamInterceptor(limit.Stream))
//
// Several buckets are one atomic take: a call that one of them refuses costs nothing in the others.
// If a policy has a concurrency limit, units are held and renewed while the handler runs or the
// stream is open, and given back when it ends, however it ends.
package grpclimit

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/engine"
	"github.com/drawgate/drawgate/internal/admit"
)

// Bucket says what is taken for a call: units from the bucket of its key, under a limiter's policy.
type Bucket struct {
	// Limiter is required. All limiters of a Limit must be derived from each other by With, and
	// have different policies.
	Limiter *drawgate.Limiter
	// Key says who is counted; nil means ByPeer(nil).
	Key Key
	// Costs says what a call costs, by its full method ("/package.Service/Method"); nil means one
	// request. A unit that is not named costs 0, requests 1; if none is named, one of the buckets
	// must count requests. A stream is one call, however many messages it has.
	Costs func(ctx context.Context, method string) []drawgate.Cost
}

// Options holds what a Limit can do without. The zero value is ready to use.
type Options struct {
	// Exempt are full methods that are not limited: "/package.Service/Method" means that one,
	// "/package.Service/*" all of a service. Nil means those of grpc.health.v1.Health; an empty
	// list means none.
	Exempt []string
	// Skip reports calls that are not limited. Nil means none.
	Skip func(ctx context.Context, method string) bool
	// Priority of a call, 0 to drawgate.MaxPriority. Nil means 0.
	Priority func(ctx context.Context, method string) int

	// Wait is how long a call may wait for its units instead of being refused. Its own deadline may
	// be earlier. 0 means that no call waits. A bucket's policy may allow less.
	Wait time.Duration
	// Queue is how many calls may wait at once: 0 means 1000.
	Queue int

	// Hold is how long units of a policy with a concurrency limit are held without being renewed: 0
	// means 30s. They are renewed while the handler runs. This is how long the slots of a process
	// that dies stay taken.
	Hold time.Duration

	// FailOpen lets calls pass when the store cannot decide, marked with x-ratelimit-fallback.
	// Otherwise they get UNAVAILABLE.
	FailOpen bool
	// OnError is called with errors: the store did not decide, a hold was lost, a policy does not
	// have the unit that was asked for. Nil ignores them. It must be quick. Errors contain no keys.
	OnError func(ctx context.Context, method string, err error)

	// Quiet leaves out the x-ratelimit- metadata; retry-after and x-ratelimit-fallback stay.
	Quiet bool
}

const healthMethod = "/grpc.health.v1.Health/*"

// ErrHoldLost is the cause with which a handler's context ends if its hold could not be renewed in
// time, or its bucket was reset. Another call may have the slot then, so the handler should stop.
var ErrHoldLost = errors.New("grpclimit: the hold of this call is lost")

// Limit limits the calls to a server. Its methods Unary and Stream are interceptors. It is safe for
// concurrent use.
type Limit struct {
	buckets []Bucket
	opts    Options
	methods map[string]bool // exempt
	service map[string]bool // exempt, "/package.Service/"
	limiter *admit.Limiter  // decides requests
	engine  *engine.Engine  // nil: units are taken from buckets
	rules   RuleOptions     // with an engine
}

// New returns a Limit that takes from all buckets, or from none, for each call. opts may be nil.
// Mistakes are reported here, so that no call has to report them.
func New(buckets []Bucket, opts *Options) (*Limit, error) {
	l := &Limit{buckets: slices.Clone(buckets)}
	if opts != nil {
		l.opts = *opts
	}
	if err := l.checkOptions(); err != nil {
		return nil, err
	}
	return l, l.checkBuckets()
}

func (l *Limit) checkBuckets() error {
	var list []admit.Bucket
	for i := range l.buckets {
		b := &l.buckets[i]
		list = append(list, admit.Bucket{Limiter: b.Limiter, Costs: b.Costs != nil})
		if b.Key == nil {
			b.Key = ByPeer(nil)
		}
	}
	return l.limiter.Check(list)
}

func (l *Limit) checkOptions() (err error) {
	o := &l.opts
	l.methods, l.service = map[string]bool{}, map[string]bool{}
	l.limiter, err = admit.New(admit.Options{
		Package: "grpclimit", Wait: o.Wait, Queue: o.Queue, Hold: o.Hold,
		FailOpen: o.FailOpen, Lost: ErrHoldLost,
	})
	if err != nil {
		return err
	}
	if o.Exempt == nil {
		o.Exempt = []string{healthMethod}
	}
	for _, e := range o.Exempt {
		name, all := strings.CutSuffix(e, "/*")
		switch parts := strings.Count(e, "/"); {
		case !strings.HasPrefix(e, "/") || parts != 2 || strings.Contains(name, "*") || strings.Contains(e, "//"):
			return fmt.Errorf("grpclimit: exempt: %q is not a method such as /package.Service/Method, or /package.Service/* for all of a service", e)
		case all:
			l.service[name+"/"] = true
		default:
			l.methods[e] = true
		}
	}
	return nil
}

// Waiting returns how many calls wait.
func (l *Limit) Waiting() int { return l.limiter.Waiting() }

func (l *Limit) report(ctx context.Context, method string, err error) {
	if l.opts.OnError != nil {
		l.opts.OnError(ctx, method, err)
	}
}

// skips reports whether a call is not limited.
func (l *Limit) skips(ctx context.Context, method string) bool {
	if l.methods[method] || l.service[method[:strings.LastIndexByte(method, '/')+1]] {
		return true
	}
	return l.opts.Skip != nil && l.opts.Skip(ctx, method)
}
