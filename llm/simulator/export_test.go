package simulator

// Counters returns how many counters a server keeps.
func (s *Server) Counters() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.counters)
}

// Providers are the names of all.
var Providers = providers
