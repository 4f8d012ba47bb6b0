package server

import (
	"errors"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/drawgate/drawgate/api"
	"github.com/drawgate/drawgate/internal/present"
	"github.com/drawgate/drawgate/spend"
)

// Spend says how it is counted what calls of the gateway spend.
type Spend struct {
	Money string         // unit of costs, as in [spend.Policy]
	Zone  *time.Location // of the days
}

// spend serves GET /v1/spend. Keys and teams of the gateway belong to no tenant.
func (s *Server) spend(w http.ResponseWriter, r *http.Request, who *access) {
	of, ok := Spend{}, false
	if s.opts.Spend != nil {
		of, ok = s.opts.Spend()
	}
	p := who.unbound()
	var q present.SpendQuery
	switch {
	case p != nil:
	case !ok:
		p = problem(api.CodeNotSupported,
			"nothing counts what calls spend: the configuration needs the section gateway")
	default:
		q, p = spendQuery(r, time.Now().In(of.Zone))
	}
	if p != nil {
		writeProblem(w, p)
		return
	}
	rows, err := spend.Read(r.Context(), s.store, of.Money, q.First, q.Last, "")
	switch {
	case errors.Is(err, spend.ErrCannotList):
		writeProblem(w, problem(api.CodeNotSupported, "the store cannot list its buckets"))
	case err != nil:
		writeProblem(w, s.fail(err))
	default:
		writeJSON(w, http.StatusOK, present.Spend(rows, &q, of.Zone, of.Money))
	}
}

// spendQuery says what is wanted: without a day this month until now.
func spendQuery(r *http.Request, now time.Time) (q present.SpendQuery, p *api.Problem) {
	q.First, q.Last = present.ThisMonth(now)
	for name, values := range r.URL.Query() {
		v, err := values[len(values)-1], error(nil)
		switch name {
		case "from":
			q.First, err = present.SpendDay(v)
		case "to":
			q.Last, err = present.SpendDay(v)
		case "by":
			q.By = slices.DeleteFunc(strings.Split(strings.Join(values, ","), ","),
				func(s string) bool { return s == "" })
		case "team":
			q.Team = &v
		case "key":
			q.Key = &v
		case "upstream":
			q.Upstream = &v
		case "model":
			q.Model = &v
		default:
			return q, problem(api.CodeInvalid, "%q is not one of from, to, by, team, key, upstream and model", name)
		}
		if err != nil {
			return q, problem(api.CodeInvalid, "%s: %v", name, err)
		}
	}
	if err := q.Check(); err != nil {
		return q, problem(api.CodeInvalid, "%v", err)
	}
	return q, nil
}
