package server

import (
	"net/http"
	"time"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/api"
	"github.com/drawgate/drawgate/internal/failure"
	"github.com/drawgate/drawgate/internal/present"
	"github.com/drawgate/drawgate/internal/sampler"
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

// warnEvery is the shortest time between two warnings with the same text.
const warnEvery = 10 * time.Second

// warnings limit how often the server logs each of its warnings, so that many of one kind hide none
// of another.
type warnings struct{ store, proxy, giveUp, noToken, untrusted sampler.Sampler }

// fail converts an error to a problem, and logs what the client is not told.
func (s *Server) fail(err error) *api.Problem {
	p := present.Problem(err)
	if s.drain.Err() != nil && p.Code == api.CodeCancelled {
		if p = present.Problem(drawgate.ErrClosed); failure.MaySpend(err) {
			p.Detail = "this server is stopping; " + present.Spent(err)
		}
	}
	if p.Code == api.CodeStoreUnavailable {
		s.storeUnavailable(err)
	}
	return p
}

func (s *Server) storeUnavailable(err error) {
	s.warn(&s.warned.store, "the store is unavailable", err)
}

// warn logs a warning unless there was one of its kind a short time ago. The next one says how many
// were left out.
func (s *Server) warn(kind *sampler.Sampler, text string, err error) {
	if skipped, ok := kind.Pass(time.Now(), warnEvery, 1); ok {
		s.log.Warn(text, "error", err, "not_logged", skipped)
	}
}

// refusedEvery is the shortest time between two warnings that a proxy was refused for one reason.
// Any program that reaches the port can cause them, and a wrong setting does so all the time.
const refusedEvery = time.Minute

// proxyRefused logs that a proxy was refused. The proxy's clients do not see the answer: nginx
// gives them a 500.
func (s *Server) proxyRefused(kind *sampler.Sampler, remote, why string) {
	if skipped, ok := kind.Pass(time.Now(), refusedEvery, 1); ok {
		s.log.Warn("a proxy was refused: "+why, "proxy", remote, "not_logged", skipped)
	}
}
