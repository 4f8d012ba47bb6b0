package spend

// Named returns the meter with its names as rows have them.
func (m *Meter) Named() Meter { return m.named() }
