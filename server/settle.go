package server

import (
	"errors"
	"net/http"
	"time"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/api"
)

// settle serves POST /v1/settle.
func (s *Server) settle(w http.ResponseWriter, r *http.Request) {
	var q api.SettleRequest
	p := decode(w, r, &q)
	if p == nil {
		p = checkSettle(&q)
	}
	if p != nil {
		writeProblem(w, p)
		return
	}
	res, t, p := s.resume(q.Reservation)
	if p != nil {
		writeProblem(w, p)
		return
	}
	var out api.SettleAnswer
	var err error
	switch {
	case q.Cancel:
		out.Outcome, err = api.OutcomeCancelled, res.Cancel(r.Context())
	case q.RenewMS != 0:
		if err = res.Renew(r.Context(), time.Duration(q.RenewMS)*time.Millisecond); err == nil {
			out = api.SettleAnswer{Outcome: api.OutcomeRenewed, Reservation: newToken(t.ID, res.Deadline(), t.Buckets), HoldEnd: new(res.Deadline().UTC().Truncate(time.Millisecond))}
		}
	default:
		out.Outcome, err = api.OutcomeSettled, res.Settle(r.Context(), Costs(q.Used)...)
	}
	if errors.Is(err, drawgate.ErrGone) {
		out, err = api.SettleAnswer{Outcome: api.OutcomeGone}, nil
	}
	if err != nil {
		writeProblem(w, s.fail(err))
		return
	}
	writeJSON(w, http.StatusOK, out)
}

func checkSettle(q *api.SettleRequest) *api.Problem {
	if q.Reservation == "" {
		return problem(api.CodeInvalid, "the reservation is missing: give the token that the take answered")
	}
	given := 0
	for _, g := range []bool{q.Used != nil, q.Cancel, q.RenewMS != 0} {
		if g {
			given++
		}
	}
	if given > 1 {
		return problem(api.CodeInvalid, "give one of used, cancel and renew_ms")
	}
	if q.RenewMS != 0 {
		_, p := holdOf("renew_ms", q.RenewMS)
		return p
	}
	return nil
}

// resume makes a reservation of a token.
func (s *Server) resume(text string) (*drawgate.Reservation, token, *api.Problem) {
	t, err := parseToken(text)
	if err != nil {
		return nil, t, problem(api.CodeBadToken, "%v: give what the take answered, unchanged", err)
	}
	l, asks, _, p := s.buckets(t.Buckets)
	if p != nil {
		return nil, t, problem(api.CodeBadToken, "the reservation names a policy that this server does not have")
	}
	res, err := l.Resume(t.ID, time.UnixMilli(t.End), asks...)
	if err != nil {
		return nil, t, problem(api.CodeBadToken, "the reservation does not fit this server's policies: %s", Problem(err).Detail)
	}
	return res, t, nil
}
