// Package top draws what limits do right now: the buckets in use, who waits, what was refused, the
// store, upstreams and incidents.
package top

import (
	"time"

	"github.com/drawgate/drawgate/api"
)

// Snapshot is what is known at one instant. What could not be read is nil, and LeftOut says why.
type Snapshot struct {
	At        time.Time           `json:"at"` // when it was read, according to this process's clock
	Health    *api.Health         `json:"health,omitempty"`
	Usage     *api.UsageAnswer    `json:"usage,omitempty"`
	Waiting   *api.WaitingAnswer  `json:"waiting,omitempty"`
	Refusals  *api.RefusalsAnswer `json:"refusals,omitempty"`
	Upstreams []api.Upstream      `json:"upstreams,omitempty"`
	Incidents []api.Incident      `json:"incidents,omitempty"` // the newest first
	LeftOut   []string            `json:"left_out,omitempty"`

	Err error `json:"-"` // there was no answer at all; nothing else is set but At
}
