// Package engine decides by policies and rules that can be replaced while it runs. All of
// Drawgate's servers and middleware use it.
//
// A [Request] describes a caller, and the rules in force find the policies that count it; or the
// request names policies and keys itself. They are one take: all of them are granted, or none.
// Policies in shadow are evaluated separately, with their own buckets, and never change the answer.
//
// [Engine.Replace] puts another configuration in force at once. Buckets belong to policies by name,
// so nothing that was counted is lost.
package engine

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/internal/cells"
	"github.com/drawgate/drawgate/store"
)

// Engine decides takes by the configuration in force. It is safe for concurrent use.
type Engine struct {
	base *drawgate.Limiter // has a policy that is not in use; all limiters are made from it
	// the same for shadows: they do not queue, and observers do not mistake them for enforced takes
	shadow *drawgate.Limiter
	opts   Options
	pool   sync.Pool // of *scratch
	state  atomic.Pointer[state]

	credited *credited // to prepaid budgets

	local   bool          // the store does no I/O
	timed   store.Timed   // the store, if it says what it needs; else nil
	shadows chan struct{} // holds an element for each shadow being evaluated; full when the engine is closed
	close   sync.Once

	mu    sync.Mutex         // held while the state is replaced
	given map[string]Amounts // guarded by mu: by key, see GiveAmounts
}

// New returns an engine over st, which the caller closes. opts may be nil.
//
// The error joins all mistakes of the configuration: [*Error], [*rules.Error] and
// [*drawgate.LimitError].
func New(st drawgate.Store, c Config, opts *Options) (*Engine, error) {
	e := &Engine{
		pool: sync.Pool{New: func() any { return &scratch{} }}, shadows: make(chan struct{}, maxShadows),
		credited: newCredited(st),
	}
	_, e.local = st.(interface {
		Open(tenant string, plan *store.Plan) *cells.Buckets
	})
	e.timed, _ = st.(store.Timed)
	if opts != nil {
		e.opts = *opts
	}
	if e.opts.Logger == nil {
		e.opts.Logger = slog.New(slog.DiscardHandler)
	}
	o := drawgate.Options{Tenant: e.opts.Tenant, StoreTimeout: e.opts.StoreTimeout, Observer: e.opts.Observer}
	var err error
	if e.base, err = drawgate.New(st, drawgate.PerSecond("base", 1), &o); err != nil {
		return nil, err
	}
	if o.Observer != nil && o.Observer.Called != nil {
		o.Observer = &drawgate.Observer{Called: o.Observer.Called}
	} else {
		o.Observer = nil
	}
	if e.shadow, err = drawgate.New(st, drawgate.PerSecond("base", 1), &o); err != nil {
		return nil, err
	}
	if err := e.Replace(c); err != nil {
		return nil, err
	}
	return e, nil
}

// Replace puts another configuration in force, all of it at once. Running takes finish under the
// configuration with which they began; waiting callers keep their position. What was counted stays
// counted, by the rules of docs/semantics.md. After an error nothing has changed.
func (e *Engine) Replace(c Config) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	s, err := e.compile(c, e.state.Load())
	if err != nil {
		return err
	}
	e.giveAll(s)
	e.state.Store(s)
	e.base.WakeAll() // a raised limit may admit waiting callers
	return nil
}

// Limiter returns the limiter of a policy in force, with the policy's own amounts, or nil if there
// is no such policy.
func (e *Engine) Limiter(policy string) *drawgate.Limiter {
	p := e.state.Load().policies[policy]
	if p == nil {
		return nil
	}
	return p.plain.own
}

// Plan returns the plan by which a bucket is counted unless a rule has other amounts, or nil if
// there is no such policy. A policy with [ShadowSuffix] is the one that rules in shadow count by.
func (e *Engine) Plan(policy, tenant, key string) *drawgate.Plan {
	name, shadow := strings.CutSuffix(policy, ShadowSuffix)
	p := e.state.Load().policies[name]
	if p == nil {
		return nil
	}
	l := p.of(e.tenant(tenant), key, p.plain).limiter(shadow)
	if l == nil || l.Plan().Name() != policy {
		return nil
	}
	return l.Plan()
}

// Ask returns an ask for units from one bucket, with the amounts for this key, to be used in a
// [drawgate.Request] or for [drawgate.Ask.Status].
func (e *Engine) Ask(policy, tenant, key string, costs ...drawgate.Cost) (drawgate.Ask, error) {
	p, err := e.state.Load().find(policy)
	if err != nil {
		return drawgate.Ask{}, err
	}
	return drawgate.Ask{Limiter: p.of(e.tenant(tenant), key, p.plain).own, Tenant: tenant, Key: key, Costs: costs}, nil
}

// AskApplied is [Engine.Ask] for a bucket of a Result, with the amounts by which the request was
// counted there: those of the rule, or of an override. They stay the same if the configuration is
// replaced. The bucket of a shadow is the shadow's own. If a is not from a Result, it is
// [Engine.Ask].
func (e *Engine) AskApplied(a *Applied, costs ...drawgate.Cost) (drawgate.Ask, error) {
	if a.limiter == nil {
		return e.Ask(a.Policy, a.Tenant, a.Key, costs...)
	}
	return drawgate.Ask{Limiter: a.limiter, Tenant: a.Tenant, Key: a.Key, Costs: costs}, nil
}

// tenant returns t, or the engine's own tenant if t is empty.
func (e *Engine) tenant(t string) string {
	if t == "" {
		return e.opts.Tenant
	}
	return t
}

// Policies describes the policies in force that are not a [Policy.Base], in the order of the
// configuration.
func (e *Engine) Policies() []Info {
	s := e.state.Load()
	infos := make([]Info, 0, len(s.config.Policies))
	for i := range s.config.Policies {
		infos = append(infos, s.policies[s.config.Policies[i].Name].info())
	}
	return infos
}

// Policy describes one policy in force, which may be a [Policy.Base]; false means that there is
// none of this name.
func (e *Engine) Policy(name string) (Info, bool) {
	p, err := e.state.Load().find(name)
	if err != nil {
		return Info{}, false
	}
	return p.info(), true
}

func (p *policy) info() Info {
	return Info{
		Name: p.said.Name, Policy: p.said.Policy, Plan: p.plain.own.Plan(), Shadow: p.said.Shadow,
		Overrides: p.said.Overrides, DisabledUntil: p.disabled.until(),
	}
}

// Config returns the configuration in force, without policies that are a [Policy.Base]. It must not
// be changed.
func (e *Engine) Config() Config { return e.state.Load().config }

// Disable leaves a policy out of all takes from now until then. Callers that are already waiting
// keep waiting. It survives a Replace that keeps the policy, but not a restart.
func (e *Engine) Disable(policy string, until time.Time) error {
	p, err := e.state.Load().find(policy)
	if err != nil {
		return err
	}
	if !until.After(time.Now()) {
		return fmt.Errorf("%w: policy %q cannot be disabled until %s, which is in the past", drawgate.ErrInvalid,
			policy, until.UTC().Format(time.RFC3339))
	}
	p.disabled.set(until)
	return nil
}

// Enable undoes a [Engine.Disable].
func (e *Engine) Enable(policy string) error {
	p, err := e.state.Load().find(policy)
	if err != nil {
		return err
	}
	p.disabled.set(time.Time{})
	return nil
}

// Waiting returns how many callers wait in this process, and the longest time that one has been
// waiting.
func (e *Engine) Waiting() (callers int, oldest time.Duration) { return e.base.Waiting() }

// Lines describes who waits in this process, the longest line first.
func (e *Engine) Lines() []drawgate.Line { return e.base.Lines() }

// Close ends all waiting with drawgate.ErrClosed, as it does every later take. It does not close
// the store.
func (e *Engine) Close() error {
	e.credited.stop()
	err := errors.Join(e.base.Close(), e.shadow.Close())
	e.close.Do(func() {
		for range cap(e.shadows) {
			e.shadows <- struct{}{}
		}
	})
	return err
}

// Take decides a request.
//
// A refusal is a Result and not an error, with a Hold too. The error is as for
// [drawgate.Limiter.Take], [ErrUnknownPolicy], [ErrTooMany], or a *[rules.Error] if an expression
// failed on this request. After an error, the Decision is not allowed.
func (e *Engine) Take(ctx context.Context, r *Request) (Result, error) {
	var res Result
	err := e.TakeInto(ctx, r, &res)
	return res, err
}
