package ledgerfile

// ends are the lines that tell how calls ended, as far as the store may not have heard it.
type ends struct {
	list  []*endLine // in the order of their lines
	calls map[callName]*endLine
	heard uint64 // the store has heard of all ends up to the line of this number
	told  uint64 // the ledger tells so up to this one
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
	s.list, s.calls[c] = append(s.list, e), e
}

// settled notes that a call was.
func (s *ends) settled(c callName) {
	if e := s.calls[c]; e != nil {
		e.settled = true
		delete(s.calls, c)
	}
}

// hear notes that the store has heard of all calls that were settled. last is the number of the
// last line.
func (s *ends) hear(last uint64) {
	k := 0
	for k < len(s.list) && s.list[k].settled {
		k++
	}
	if k == 0 {
		return
	}
	s.list = s.list[k:]
	if s.heard = last; len(s.list) > 0 {
		s.heard = s.list[0].n - 1
	}
}
