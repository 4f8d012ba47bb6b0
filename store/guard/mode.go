package guard

import (
	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/internal/ledger"
)

// Mode returns what limit i of a policy does while the store is away, where so many instances share
// its limits; 0 means that nobody knows how many. It is never FallbackDefault. A share of what
// nobody knows how to divide is FallbackClosed.
func Mode(p *drawgate.Policy, i, instances int) drawgate.Fallback {
	return ledger.Mode(p, i, instances)
}

// policyBound is what a policy admits while the store is unavailable, for the bound.
type policyBound struct {
	plan *drawgate.Plan
	mode [drawgate.MaxLimits]drawgate.Fallback // closed, share or open; a share of none is closed
}

func newPolicyBound(plan *drawgate.Plan, instances int) *policyBound {
	return &policyBound{plan, ledger.NewFallbackPlan(plan, instances).Mode}
}
