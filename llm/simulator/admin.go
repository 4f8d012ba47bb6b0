package simulator

import (
	"errors"
	"io"
	"net/http"
	"strconv"
	"time"
)

// ledgerPage is what GET /simulator/ledger answers.
type ledgerPage struct {
	// Calls are those with an id above the parameter after, at most as many as the parameter limit.
	Calls []Call `json:"calls"`
	// Next is the id to go on after; 0 if there are no more calls.
	Next    int64 `json:"next"`
	Dropped int64 `json:"dropped"`
}

const (
	defaultPage = 1000
	maxPage     = 10_000
	maxFaults   = 1 << 20 // bytes
)

// serveAdmin answers what is asked of the simulator itself.
func (s *Server) serveAdmin(w http.ResponseWriter, r *http.Request) {
	type route struct{ method, path string }
	serve := map[route]func(r *http.Request) (any, error){
		{http.MethodGet, "/simulator/ledger"}:  s.ledgerPage,
		{http.MethodGet, "/simulator/report"}:  func(*http.Request) (any, error) { return s.Report(time.Time{}), nil },
		{http.MethodPost, "/simulator/reset"}:  func(*http.Request) (any, error) { s.Reset(); return object{}, nil },
		{http.MethodPost, "/simulator/faults"}: s.injectAll,
	}[route{r.Method, r.URL.Path}]
	if serve == nil {
		adminAnswer(w, http.StatusNotFound,
			object{"error": "simulator: there is only GET /simulator/ledger and /simulator/report, and POST /simulator/reset and /simulator/faults"})
		return
	}
	v, err := serve(r)
	if err != nil {
		adminAnswer(w, http.StatusBadRequest, object{"error": err.Error()})
		return
	}
	adminAnswer(w, http.StatusOK, v)
}

func adminAnswer(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(append(encode(v), '\n')) // nobody can be told that the client has left
}

func (s *Server) ledgerPage(r *http.Request) (any, error) {
	after, limit := int64(0), int64(defaultPage)
	for name, v := range map[string]*int64{"after": &after, "limit": &limit} {
		if text := r.URL.Query().Get(name); text != "" {
			n, err := strconv.ParseInt(text, 10, 64)
			if err != nil || n < 0 {
				return nil, errors.New("simulator: " + name + " must be a whole number from 0 on")
			}
			*v = n
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	p := ledgerPage{Calls: s.ledger.after(after, int(min(limit, maxPage))), Dropped: s.ledger.dropped}
	if n := len(p.Calls); n > 0 && p.Calls[n-1].ID < s.ledger.lastID {
		p.Next = p.Calls[n-1].ID
	}
	return p, nil
}

// injectAll reads one fault, or a list of them.
func (s *Server) injectAll(r *http.Request) (any, error) {
	body, err := io.ReadAll(io.LimitReader(r.Body, maxFaults))
	if err != nil {
		return nil, errors.New("simulator: the request could not be read")
	}
	faults, err := ParseFaults(body)
	if err != nil {
		return nil, err
	}
	if err := s.Inject(faults...); err != nil {
		return nil, err
	}
	return object{"injected": len(faults)}, nil
}
