package present

import (
	"cmp"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/api"
	"github.com/drawgate/drawgate/engine"
)

// Policy converts a policy in force to its wire form.
func Policy(info *engine.Info) api.Policy {
	p := api.Policy{
		Name: info.Name, Shadow: info.Shadow, DisabledUntil: instant(info.DisabledUntil),
		Fallback: info.Policy.Fallback.String(), Limits: []api.LimitSpec{},
	}
	for i := range info.Policy.Limits {
		l := &info.Policy.Limits[i]
		spec := api.LimitSpec{
			Name: l.Name, Unit: Unit(l), Kind: l.Kind.String(), Amount: l.Amount,
			Most: info.Plan.Max(i, 0), WindowMS: l.Window.Milliseconds(), Description: Describe(l),
		}
		switch l.Kind {
		case drawgate.Bucket:
			spec.Burst = cmp.Or(l.Burst, l.Amount)
		case drawgate.Calendar:
			spec.Every, spec.Zone = l.Every.String(), cmp.Or(l.Zone, "UTC")
		}
		p.Limits = append(p.Limits, spec)
	}
	return p
}
