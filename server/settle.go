package server

import (
	"errors"
	"net/http"
	"time"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/api"
)

// beyondAnyHold is later than a hold that a token says can end.
const beyondAnyHold = 1000 * time.Hour

// settle serves POST /v1/settle.
//
// A settlement that comes after the end of the hold is gone; what was used beyond the estimate is then charged, once, if this process gave the
// reservation out and remembers it (the newest 65,536), and has neither settled nor cancelled it. So a token that was made up charges nothing. After a
// restart, or at another replica, the excess of a hold that has ended is not charged. If another replica has settled a reservation, and the client asks
// once more after the end of the hold, and here, the excess is charged again: too much is counted then, never too little.
func (s *Server) settle(w http.ResponseWriter, r *http.Request) {
	var q api.SettleRequest
	p := s.decode(w, r, &q)
	if p == nil {
		p = checkSettle(&q)
	}
	if p != nil {
		writeProblem(w, p)
		return
	}
	t, err := parseToken(q.Reservation)
	if err != nil {
		writeProblem(w, problem(api.CodeBadToken, "%v: give what the take answered, unchanged", err))
		return
	}
	k, end, mine := markOf(t.ID, t.Buckets), time.UnixMilli(t.End), false
	if q.RenewMS == 0 {
		if mine = s.given.claim(k); !mine {
			end = time.Now().Add(beyondAnyHold) // for the library it does not come late, so it charges nothing
		}
	}
	res, p := s.resume(&t, end)
	if p != nil {
		writeProblem(w, p)
		return
	}
	var out api.SettleAnswer
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
		if mine && !charged(err) {
			s.given.add(k)
		}
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

// charged reports whether a settlement failed with its charge, which may have arrived.
func charged(err error) bool {
	e, ok := errors.AsType[*drawgate.StoreError](err)
	return ok && e.Op == drawgate.OpCharge.String()
}

// resume makes a reservation of a token.
func (s *Server) resume(t *token, end time.Time) (*drawgate.Reservation, *api.Problem) {
	l, asks, _, p := s.buckets(t.Buckets)
	if p != nil {
		return nil, problem(api.CodeBadToken, "the reservation names a policy that this server does not have")
	}
	res, err := l.Resume(t.ID, end, asks...)
	if err != nil {
		return nil, problem(api.CodeBadToken, "the reservation does not fit this server's policies: %s", Problem(err).Detail)
	}
	return res, nil
}
