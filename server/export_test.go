package server

import (
	"context"
	"log"
	"log/slog"
	"net"
	"net/http"
	"runtime"
	"time"
	"weak"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/api"
	"github.com/drawgate/drawgate/internal/present"
)

// SetReadTimeout sets how long a request may take to arrive.
func (s *Server) SetReadTimeout(d time.Duration) { s.read = d }

// NewErrorLog returns what net/http logs to.
func NewErrorLog(l *slog.Logger) *log.Logger { return newErrorLog(l) }

// ParseToken returns the id and the buckets of a token.
func ParseToken(text string) (id string, buckets int, err error) {
	t, err := parseToken(text)
	return t.ID, len(t.Buckets), err
}

// NewToken makes a token, of grant 1.
func NewToken(id string, end time.Time, buckets []api.Bucket) string {
	return newToken(id, 1, end, buckets)
}

// Remembered returns which of the ids can be claimed from a memory of a size, after others were
// added.
func Remembered(size int, add, claim []string) (got string) {
	m := newMemory(size)
	for _, id := range add {
		m.add(markOf(id, 1, nil), nil)
	}
	for _, id := range claim {
		if _, ok := m.claim(markOf(id, 1, nil)); ok {
			got += id
		}
	}
	return got
}

// Route describes one path that is served.
type Route struct {
	Path    string
	Methods []string
	Role    Role
	Admin   bool
}

// Routes returns what is served.
func (s *Server) Routes() []Route {
	all := []Route{{forwardPath, []string{http.MethodGet, http.MethodHead}, RoleTake, false}}
	for _, r := range s.routes() {
		all = append(all, Route{r.path, r.methods, r.role, r.admin})
	}
	return all
}

// Codes returns the codes of the problems that a server answers.
func Codes() []api.Code { return present.Codes() }

// MayListen reports why an address may not be served.
func (s *Server) MayListen(addr net.Addr) error { return s.mayListen(addr) }

// Often returns files that are looked at again with every connection.
func (f TLSFiles) Often() TLSFiles {
	f.every = time.Nanosecond
	return f
}

// AppendTakeAnswer writes an answer.
func AppendTakeAnswer(b []byte, a *api.TakeAnswer) []byte { return appendTakeAnswer(b, a) }

// Scan reads a request the fast way.
func Scan(body []byte) (q api.TakeRequest, ok bool) {
	ok = scanTake(body, &q)
	return q, ok
}

// Parse reads a request as encoding/json does.
func Parse(body []byte) (q api.TakeRequest, p *api.Problem) {
	p = parse(body, &q)
	return q, p
}

// SameMark reports whether the memory takes two grants of an id for one reservation.
func SameMark(id string, a, b drawgate.Grant) bool { return markOf(id, a, nil) == markOf(id, b, nil) }

// ReadingsInMemory makes n readings of what buckets have used, one after the other, and returns how
// many of them are still in memory.
func ReadingsInMemory(n int) (alive int) {
	u := newUsages(context.Background(), time.Nanosecond)
	defer u.close()
	var all []weak.Pointer[reading]
	for range n {
		r, _ := u.latest("", func(context.Context, *reading) error { return nil })
		<-r.done
		time.Sleep(time.Until(r.until))
		all = append(all, weak.Make(r))
	}
	runtime.GC()
	runtime.GC()
	for _, p := range all {
		if p.Value() != nil {
			alive++
		}
	}
	runtime.KeepAlive(u)
	return alive
}
