package record

// Lasts reports whether units used at instant at, up to all that the limit grants, may still count
// now. It ignores slots, because it is unknown how long they were held.
func (s *Spec) Lasts(at, now int64) bool {
	return now < s.LastsUntil(at)
}

// LastsUntil returns when units used at instant at, up to all that the limit grants, no longer
// count. Slots are ignored: it returns at.
func (s *Spec) LastsUntil(at int64) int64 {
	switch s.Kind {
	case Bucket:
		return at + CeilDiv(s.Effective[Priorities-1]*s.Scale, s.Drain)
	case Rolling:
		return at + s.Window
	case Calendar:
		_, end := s.Rule.Window(at)
		return end
	}
	return at
}
