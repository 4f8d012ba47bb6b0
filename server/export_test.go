package server

import "time"

// SetReadTimeout sets how long a request may take to arrive.
func (s *Server) SetReadTimeout(d time.Duration) { s.read = d }

// ParseToken returns the id and the buckets of a token.
func ParseToken(text string) (id string, buckets int, err error) {
	t, err := parseToken(text)
	return t.ID, len(t.Buckets), err
}
