package telemetry

// Places adds policies to a table that has places for so many, and returns where each is kept.
func Places(most int, policies ...string) (kept []string) {
	t := newTable(most, func(policy string) *string { return &policy })
	for range 2 { // the second time they are there
		kept = kept[:0]
		for _, p := range policies {
			kept = append(kept, *t.get(p))
		}
	}
	n := 0
	t.each(func(*string) { n++ })
	if n > most+1 {
		kept = nil
	}
	return kept
}
