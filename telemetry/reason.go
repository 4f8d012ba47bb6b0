package telemetry

import "github.com/drawgate/drawgate"

// reason is why a take was refused, in the words of rate_limit_rejections_total.
type reason uint8

const (
	distributedExhausted reason = iota // by what all processes share
	localExhausted                     // by this process's own limiter
	backendError                       // because the store is unavailable
	paused                             // because a bucket is paused
	reasons
)

var reasonNames = [reasons]string{"distributed_exhausted", "local_exhausted", "backend_error", "paused"}

// reason returns why a take was refused. d is nil if others wait in front of it.
func (m *Metrics) reason(d *drawgate.Decision) reason {
	switch {
	case d != nil && d.Reason == drawgate.Unavailable:
		return backendError
	case d != nil && d.Reason == drawgate.Paused:
		return paused
	case d != nil && d.Fallback, m.opts.Local:
		return localExhausted
	}
	return distributedExhausted
}
