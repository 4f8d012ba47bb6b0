package guard

import (
	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/internal/ledger"
)

// Mode returns what limit i of a policy does during an outage if this many instances share its
// limits; 0 means that the number is unknown. It is never FallbackDefault. FallbackShare with an
// unknown number of instances is FallbackClosed.
func Mode(p *drawgate.Policy, i, instances int) drawgate.Fallback {
	return ledger.Mode(p, i, instances)
}

// policyBound is what [Bound] needs of one policy.
type policyBound struct {
	plan *drawgate.Plan
	mode [drawgate.MaxLimits]drawgate.Fallback // closed, share or open; a share of less than one unit is closed
}

func newPolicyBound(plan *drawgate.Plan, instances int) *policyBound {
	return &policyBound{plan, ledger.NewFallbackPlan(plan, instances).Mode}
}
