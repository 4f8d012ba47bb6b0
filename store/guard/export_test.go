package guard

// Steady takes chance out of a guard.
func Steady(o *Options) *Options {
	o.random = func() float64 { return 0.5 }
	return o
}

// Valid reports what a guard leaves to its store to refuse.
var Valid = valid
