package guard

// Steady makes a guard deterministic.
func Steady(o *Options) *Options {
	o.random = func() float64 { return 0.5 }
	return o
}
