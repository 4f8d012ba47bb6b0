package engine

import (
	"log/slog"
	"slices"
	"time"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/rules"
)

// Config is what an engine decides by.
type Config struct {
	Policies []Policy
	Rules    []rules.Rule
	Off      bool // limits are switched off: who asks for a policy that there is not passes, and nothing is counted
}

// Policy is a policy and what an engine adds to it.
type Policy struct {
	drawgate.Policy
	Shadow    bool // evaluated and reported, never enforced
	Disabled  bool // left out of all takes until [Engine.Enable], or until a configuration is in force that does not say so
	Overrides []Override
	Base      bool // limiters of other limits are made from it: it can be asked for and disabled by name, and is listed nowhere
}

// Listed returns the policies without those that are a Base.
func (c *Config) Listed() []Policy {
	return slices.DeleteFunc(slices.Clone(c.Policies), func(p Policy) bool { return p.Base })
}

// Override gives some keys of a policy other amounts. The most exact one decides: the key itself before the longest prefix, and of two that are as exact
// the one that names a tenant. It replaces what a rule says of amounts.
type Override struct {
	Key     string           // exact, or "prefix*"
	Tenant  string           // "": of any tenant
	Amounts map[string]int64 // per limit (and "limit.burst"); what is not named stays as in the policy
}

// Options holds what an Engine can do without. The zero value is ready to use.
type Options struct {
	Tenant       string             // of whoever names none
	StoreTimeout time.Duration      // as in [drawgate.Options]; what is shadow waits no longer either
	ShadowGrace  time.Duration      // how long an answer waits for its shadows, when it is there before them: 0 means 5ms
	Observer     *drawgate.Observer // told of every decision that is enforced, and of every store call; nil costs nothing
	Diverged     func(*Divergence)  // told of every shadow that would have answered differently; on the caller's path: it must not block
	Logger       *slog.Logger       // nil discards
}
