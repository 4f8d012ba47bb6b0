package engine

import (
	"context"

	"github.com/drawgate/drawgate"
)

// Adjust corrects what a limit of the bucket of a policy's key has used: see
// [drawgate.Ask.Adjust]. The Costs of a are ignored. The reason must be UTF-8 without control
// characters.
func (e *Engine) Adjust(ctx context.Context, a Ask, limit string, used int64, reason string) (drawgate.Adjusted,
	error,
) {
	if err := checkReason(reason); err != nil {
		return drawgate.Adjusted{}, err
	}
	ask, err := e.Ask(a.Policy, a.Tenant, a.Key)
	if err != nil {
		return drawgate.Adjusted{}, err
	}
	return ask.Adjust(ctx, limit, used, reason)
}
