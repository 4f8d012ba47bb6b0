package guard

import (
	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/internal/ledger"
	"github.com/drawgate/drawgate/store"
)

// Mode returns what limit i of a policy does during an outage if this many instances share its
// limits; 0 means that the number is unknown. It is never FallbackDefault. FallbackShare with an
// unknown number of instances is FallbackClosed.
func Mode(p *drawgate.Policy, i, instances int) store.Fallback {
	limits := make([]store.Limit, len(p.Limits))
	for k := range limits {
		limits[k] = store.Limit(p.Limits[k])
	}
	return ledger.Mode(&store.Policy{Limits: limits, Fallback: p.Fallback}, i, instances)
}

// policyBound is what [Bound] needs of one policy.
type policyBound struct {
	plan *store.Plan
	mode [store.MaxLimits]store.Fallback // closed, share or open; a share of less than one unit is closed
}

func newPolicyBound(plan *store.Plan, instances int) *policyBound {
	return &policyBound{plan, ledger.NewFallbackPlan(plan, instances).Mode}
}
