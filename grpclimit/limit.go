package grpclimit

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/internal/hold"
)

// Bucket says what is taken for a call: units of the bucket of its key under a limiter's policy.
type Bucket struct {
	// Limiter is required. All limiters of a Limit must have been made from one another, by With,
	// and have different policies.
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
	// Exempt are full methods that are not limited: "/package.Service/Method" that one,
	// "/package.Service/*" all of a service. Nil means those of grpc.health.v1.Health; an empty
	// list means none.
	Exempt []string
	// Skip reports calls that are not limited. Nil means none.
	Skip func(ctx context.Context, method string) bool
	// Priority of a call, 0 to drawgate.MaxPriority. Nil means 0.
	Priority func(ctx context.Context, method string) int

	// Wait is how long a call that does not pass may wait until it does, instead of being refused;
	// its own deadline may be earlier. 0 means that none waits. A bucket's policy may allow less.
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
	// OnError is told of what went wrong: the store did not decide, a hold was lost, a policy does
	// not have what was asked for. Nil ignores it. It must be quick. No key is in an error.
	OnError func(ctx context.Context, method string, err error)

	// Quiet leaves out the x-ratelimit- metadata; retry-after and x-ratelimit-fallback stay.
	Quiet bool
}

// Defaults and bounds of Options.
const (
	defaultHold  = 30 * time.Second
	defaultQueue = 1000
	healthMethod = "/grpc.health.v1.Health/*"
)

// Limit limits the calls to a server. Its methods Unary and Stream are interceptors. It is safe for
// concurrent use.
type Limit struct {
	buckets []Bucket
	opts    Options
	methods map[string]bool // exempt
	service map[string]bool // exempt, "/package.Service/"
	holds   bool
	waiting atomic.Int64
}

// New returns a Limit that takes of all buckets, or of none, for each call. opts may be nil. It
// reports what cannot work here, so that no call has to.
func New(buckets []Bucket, opts *Options) (*Limit, error) {
	l := &Limit{buckets: slices.Clone(buckets), methods: map[string]bool{}, service: map[string]bool{}}
	if opts != nil {
		l.opts = *opts
	}
	if err := l.checkBuckets(); err != nil {
		return nil, err
	}
	return l, l.checkOptions()
}

func (l *Limit) checkBuckets() error {
	if n := len(l.buckets); n == 0 || n > drawgate.MaxBuckets {
		return fmt.Errorf("grpclimit: %d buckets, but 1 to %d are allowed", n, drawgate.MaxBuckets)
	}
	names := map[string]bool{}
	var asks []drawgate.Ask
	for i := range l.buckets {
		b := &l.buckets[i]
		if b.Limiter == nil {
			return fmt.Errorf("grpclimit: bucket %d has no limiter", i+1)
		}
		plan := b.Limiter.Plan()
		if names[plan.Name()] {
			return fmt.Errorf("grpclimit: two buckets are of policy %q: give one of them another name", plan.Name())
		}
		names[plan.Name()] = true
		l.holds = l.holds || plan.NeedsHold()
		if b.Key == nil {
			b.Key = ByPeer(nil)
		}
		ask := drawgate.Ask{Limiter: b.Limiter, Key: "grpclimit"}
		if b.Costs != nil {
			ask.Costs = []drawgate.Cost{{Unit: plan.Policy().Limits[0].Unit, N: 1}}
		}
		asks = append(asks, ask)
	}
	// Nothing is asked for: the library knows best which limiters can be mixed, and whether calls
	// that name no unit take any.
	if _, err := asks[0].Limiter.Resume("grpclimit", 1, time.Now(), asks...); err != nil {
		return fmt.Errorf("grpclimit: the buckets cannot be taken together: %w", err)
	}
	return nil
}

func (l *Limit) checkOptions() error {
	o := &l.opts
	if o.Hold == 0 {
		o.Hold = defaultHold
	}
	if o.Queue == 0 {
		o.Queue = defaultQueue
	}
	if o.Hold < hold.Min || o.Hold > drawgate.MaxHold {
		return fmt.Errorf("grpclimit: hold %v is not between %v and %v", o.Hold, hold.Min, drawgate.MaxHold)
	}
	if o.Wait < 0 || o.Queue < 0 {
		return fmt.Errorf("grpclimit: wait %v and queue %d must not be negative", o.Wait, o.Queue)
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
func (l *Limit) Waiting() int { return int(l.waiting.Load()) }

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
