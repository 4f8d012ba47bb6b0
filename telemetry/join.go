package telemetry

import (
	"slices"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/store/guard"
)

// Join returns an observer that calls each of obs, in order. Those that are nil are left out. If
// none is left the result is nil, which costs a limiter nothing.
func Join(obs ...*drawgate.Observer) *drawgate.Observer {
	obs = slices.DeleteFunc(slices.Clone(obs), func(o *drawgate.Observer) bool { return o == nil })
	switch len(obs) {
	case 0:
		return nil
	case 1:
		return obs[0]
	}
	return &drawgate.Observer{
		Taken:   each(obs, func(o *drawgate.Observer) func(*drawgate.Taken) { return o.Taken }),
		Settled: each(obs, func(o *drawgate.Observer) func(*drawgate.Settled) { return o.Settled }),
		Called:  each(obs, func(o *drawgate.Observer) func(*drawgate.StoreCall) { return o.Called }),
	}
}

// JoinGuards is [Join] for observers of a guard.
func JoinGuards(obs ...*guard.Observer) *guard.Observer {
	obs = slices.DeleteFunc(slices.Clone(obs), func(o *guard.Observer) bool { return o == nil })
	switch len(obs) {
	case 0:
		return nil
	case 1:
		return obs[0]
	}
	return &guard.Observer{
		BackendError: each(obs, func(o *guard.Observer) func(*guard.BackendError) { return o.BackendError }),
		FallbackActivated: each(obs,
			func(o *guard.Observer) func(*guard.FallbackActivated) { return o.FallbackActivated }),
		Opened:  each(obs, func(o *guard.Observer) func(*guard.Opened) { return o.Opened }),
		Probed:  each(obs, func(o *guard.Observer) func(*guard.Probe) { return o.Probed }),
		Closed:  each(obs, func(o *guard.Observer) func(*guard.Closed) { return o.Closed }),
		Lost:    each(obs, func(o *guard.Observer) func(*guard.Lost) { return o.Lost }),
		Charged: each(obs, func(o *guard.Observer) func(*guard.Charged) { return o.Charged }),

		Recovered: each(obs, func(o *guard.Observer) func(*guard.Recovered) { return o.Recovered }),
	}
}

// each returns a func that calls the chosen func of every observer that has it, or nil if none has.
func each[O, E any](obs []*O, of func(*O) func(*E)) func(*E) {
	var all []func(*E)
	for _, o := range obs {
		if f := of(o); f != nil {
			all = append(all, f)
		}
	}
	switch len(all) {
	case 0:
		return nil
	case 1:
		return all[0]
	}
	return func(e *E) {
		for _, f := range all {
			f(e)
		}
	}
}
