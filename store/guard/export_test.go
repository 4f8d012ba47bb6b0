package guard

import "context"

// Steady makes a guard deterministic.
func Steady(o *Options) *Options {
	o.random = func() float64 { return 0.5 }
	return o
}

// DeliverFirst waits until nothing is pending that a take depends on.
func (s *Store) DeliverFirst(ctx context.Context) error { return s.deliverFirst(ctx, nil) }
