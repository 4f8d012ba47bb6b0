package api

// Servers before 1.0 wrote other words for these. They are read, and not written.

// UnmarshalText reads a reason.
func (r *Reason) UnmarshalText(text []byte) error {
	if *r = Reason(text); *r == "away" {
		*r = ReasonUnavailable
	}
	return nil
}

// UnmarshalText reads a status.
func (s *Status) UnmarshalText(text []byte) error {
	if *s = Status(text); *s == "away" {
		*s = StatusUnavailable
	}
	return nil
}

// UnmarshalText reads a code.
func (c *Code) UnmarshalText(text []byte) error {
	if *c = Code(text); *c == "store_away" {
		*c = CodeStoreUnavailable
	}
	return nil
}
