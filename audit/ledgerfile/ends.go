package ledgerfile

// ends tells which lines about the ends of calls the store has heard of. It keeps those alone that
// are not settled yet: an outage may last long.
type ends struct {
	open              []*endLine // not settled, in the order of their lines; some may be settled by now
	calls             map[callName]*endLine
	last              uint64 // of these lines
	done              uint64 // the last one up to which all calls were settled
	heard             uint64 // the store has heard of all ends up to the line of this number
	written           uint64 // the ledger tells so up to this one
	miscounted        uint64 // how often a call may have been counted wrongly
	writtenMiscounted uint64 // the ledger tells so of that many
}

type callName struct {
	upstream string
	call     uint64
	granted  int64
}

// endLine is one of the lines.
type endLine struct {
	n       uint64
	settled bool // the call was settled: the store has heard of it, or what stands in front of it has
}

// add adds line n, of a call that is not settled yet.
func (s *ends) add(c callName, n uint64) {
	if s.calls == nil {
		s.calls = map[callName]*endLine{}
	}
	e := &endLine{n: n}
	s.open, s.calls[c], s.last = append(s.open, e), e, n
}

// settle notes that a call was settled.
func (s *ends) settle(c callName) {
	if e := s.calls[c]; e != nil {
		e.settled = true
		delete(s.calls, c)
	}
	k := 0
	for k < len(s.open) && s.open[k].settled {
		s.done = s.open[k].n
		k++
	}
	if s.open = s.open[k:]; len(s.open) == 0 {
		s.open = nil
	}
}

// settled returns the number of a line, up to which all calls were settled, or 0 if that is nothing
// new. last is the number of the last line.
func (s *ends) settled(last uint64) uint64 {
	switch {
	case s.done <= s.heard:
		return 0
	case len(s.open) > 0:
		return s.open[0].n - 1
	}
	return last
}

// hear notes that the store has heard of all calls up to a line.
func (s *ends) hear(upTo uint64) { s.heard = max(s.heard, upTo) }

// unheard reports whether there are calls of which the store may not have heard.
func (s *ends) unheard() bool { return s.heard < s.last }
