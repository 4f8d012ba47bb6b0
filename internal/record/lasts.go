package record

// Lasts reports whether units used at instant at, up to all that the limit grants, may still count
// now. It ignores slots, because it is unknown how long they were held.
func (s *Spec) Lasts(at, now int64) bool {
	switch s.Kind {
	case Bucket:
		return now-at < CeilDiv(s.Effective[Priorities-1]*s.Scale, s.Drain)
	case Rolling:
		return now-at < s.Window
	case Calendar:
		_, end := s.Rule.Window(at)
		return now < end
	}
	return false
}
