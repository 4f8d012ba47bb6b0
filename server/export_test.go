package server

import (
	"time"

	"github.com/drawgate/drawgate/api"
)

// SetReadTimeout sets how long a request may take to arrive.
func (s *Server) SetReadTimeout(d time.Duration) { s.read = d }

// ParseToken returns the id and the buckets of a token.
func ParseToken(text string) (id string, buckets int, err error) {
	t, err := parseToken(text)
	return t.ID, len(t.Buckets), err
}

// NewToken makes a token.
func NewToken(id string, end time.Time, buckets []api.Bucket) string {
	return newToken(id, end, buckets)
}

// Remembered returns which of the ids can be claimed from a memory of a size, after others were added.
func Remembered(size int, add, claim []string) (got string) {
	m := newMemory(size)
	for _, id := range add {
		m.add(markOf(id, nil), nil)
	}
	for _, id := range claim {
		if _, ok := m.claim(markOf(id, nil)); ok {
			got += id
		}
	}
	return got
}
