package server

import (
	"net/http"
	"time"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/api"
	"github.com/drawgate/drawgate/internal/failure"
	"github.com/drawgate/drawgate/internal/present"
)

func problem(code api.Code, format string, args ...any) *api.Problem {
	return present.Problemf(code, format, args...)
}

func writeProblem(w http.ResponseWriter, p *api.Problem) {
	switch p.Status {
	case http.StatusServiceUnavailable:
		w.Header().Set("Retry-After", "1")
	case http.StatusUnauthorized:
		w.Header().Set("WWW-Authenticate", `Bearer realm="drawgate"`)
	}
	write(w, p.Status, problemType, append(marshal(p), '\n'))
}

// warnEvery is how often an outage of the store is logged.
const warnEvery = 10 * time.Second

// fail converts an error to a problem, and logs what the client is not told.
func (s *Server) fail(err error) *api.Problem {
	p := present.Problem(err)
	if s.drain.Err() != nil && p.Code == api.CodeCancelled {
		if p = present.Problem(drawgate.ErrClosed); failure.MaySpend(err) {
			p.Detail = "this server is stopping; " + present.Spent(err)
		}
	}
	if p.Code == api.CodeStoreAway {
		s.warn("the store is unavailable", err)
	}
	return p
}

func (s *Server) warn(text string, err error) {
	if _, ok := s.warned.Pass(time.Now(), warnEvery, 1); ok {
		s.log.Warn(text, "error", err)
	}
}
