package server

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/api"
	"github.com/drawgate/drawgate/engine"
	"github.com/drawgate/drawgate/internal/present"
	"github.com/drawgate/drawgate/store"
)

// beyondAnyHold is later than the end of any hold in a token.
const beyondAnyHold = 1000 * time.Hour

// settle serves POST /v1/settle.
//
// A settlement after the end of the hold finds the reservation gone. What was used beyond the
// estimate is then charged, once, if this process gave out the reservation, remembers it (the
// newest 65,536), and has neither settled nor cancelled it. So a forged token charges nothing.
// After a restart, or at another replica, the excess of an ended hold is not charged. If another
// replica has settled a reservation, and the client settles it here again after the end of the
// hold, the excess is charged again: too much is counted then, never too little.
func (s *Server) settle(w http.ResponseWriter, r *http.Request, who *access) {
	var q api.SettleRequest
	p := s.decode(w, r, &q)
	if p == nil {
		p = checkSettle(&q)
	}
	if p != nil {
		writeProblem(w, p)
		return
	}
	if q.Take != nil {
		s.settleTake(w, r, who, q.Take)
		return
	}
	t, err := parseToken(q.Reservation)
	if err != nil {
		writeProblem(w, problem(api.CodeBadToken, "%v", err))
		return
	}
	if p := who.mayTouch(t.Buckets); p != nil {
		writeProblem(w, p)
		return
	}
	out, err := s.settleToken(r.Context(), &q, &t)
	if err != nil {
		writeProblem(w, s.fail(err))
		return
	}
	writeJSON(w, http.StatusOK, out)
}

// settleTake cancels a take whose answer the client never received, so that it has no token. The
// client chose its grant.
func (s *Server) settleTake(w http.ResponseWriter, r *http.Request, who *access, t *api.Take) {
	var req engine.Request
	if p := s.request(who, t, &req); p != nil {
		writeProblem(w, p)
		return
	}
	out := api.SettleAnswer{Outcome: api.OutcomeGone}
	s.cancelled.add(cancelledMark(&req), nil) // first: a take that arrives from now on gives back what it opens
	l, err := s.engine.Lost(&req)
	if err == nil {
		err = l.Cancel(r.Context())
	}
	switch {
	case err == nil:
		out.Outcome = api.OutcomeCancelled
	case !errors.Is(err, drawgate.ErrGone):
		writeProblem(w, s.fail(err))
		return
	case l != nil: // the take may still be on its way to the store
		s.cancelLater(r.Context(), l.CancelAll)
	}
	writeJSON(w, http.StatusOK, out)
}

// settleToken carries out a settlement. The error may be a *[api.Problem].
func (s *Server) settleToken(ctx context.Context, q *api.SettleRequest, t *token) (out api.SettleAnswer, err error) {
	k, end, mine := markOf(t.ID, t.Grant, t.Buckets), time.UnixMilli(t.End), false
	var shadows *engine.Result
	if q.RenewMS != 0 {
		shadows = s.issued.shadows(k)
	} else if shadows, mine = s.issued.claim(k); !mine {
		end = time.Now().Add(beyondAnyHold) // the library then considers it in time, so it charges nothing
	}
	res, err := s.resume(t, end)
	if err == nil {
		out, err = settle(ctx, q, t, res, shadows)
	}
	if err != nil && mine && !charged(err) {
		s.issued.add(k, shadows)
	}
	return out, err
}

// settle carries out a settlement of a reservation and of its shadows.
func settle(ctx context.Context, q *api.SettleRequest, t *token, res *drawgate.Reservation,
	shadows *engine.Result,
) (out api.SettleAnswer, err error) {
	all := engine.Result{Reservation: res}
	if shadows != nil {
		all = *shadows
		all.Reservation, res.Decision = res, shadows.Decision // it has the units
	}
	switch {
	case q.Cancel:
		out.Outcome, err = api.OutcomeCancelled, all.Cancel(ctx)
	case q.RenewMS != 0:
		if err = all.Renew(ctx, time.Duration(q.RenewMS)*time.Millisecond); err == nil {
			out = api.SettleAnswer{
				Outcome:     api.OutcomeRenewed,
				Reservation: newToken(t.ID, t.Grant, res.Deadline(), t.Buckets),
				HoldEnd:     new(res.Deadline().UTC().Truncate(time.Millisecond)),
			}
		}
	default:
		out.Outcome, err = api.OutcomeSettled, all.Settle(ctx, present.Costs(q.Used)...)
	}
	if errors.Is(err, drawgate.ErrGone) {
		return api.SettleAnswer{Outcome: api.OutcomeGone}, nil
	}
	return out, err
}

func checkSettle(q *api.SettleRequest) *api.Problem {
	switch t := q.Take; {
	case (q.Reservation == "") == (t == nil):
		return problem(api.CodeInvalid,
			"the reservation is missing: give the token from the take's answer, or, to cancel a take without an answer, the take")
	case t == nil:
	case !q.Cancel || q.Used != nil || q.RenewMS != 0:
		return problem(api.CodeInvalid,
			"a take without an answer can only be cancelled: give cancel, and neither used nor renew_ms")
	case t.Grant == "":
		return problem(api.CodeInvalid,
			"the take has no grant: give the one that you sent. If the server chose the grant, it cancels unanswered takes itself")
	}
	fields := 0
	for _, g := range []bool{q.Used != nil, q.Cancel, q.RenewMS != 0} {
		if g {
			fields++
		}
	}
	if fields > 1 {
		return problem(api.CodeInvalid, "give one of used, cancel and renew_ms")
	}
	if q.RenewMS != 0 {
		_, p := holdOf("renew_ms", q.RenewMS)
		return p
	}
	return nil
}

// charged reports whether the charge of a settlement failed, and may have arrived.
func charged(err error) bool {
	e, ok := errors.AsType[*drawgate.StoreError](err)
	return ok && e.Op == store.OpCharge.String()
}

// resume turns a token into a reservation.
func (s *Server) resume(t *token, end time.Time) (*drawgate.Reservation, error) {
	asks := make([]drawgate.Ask, len(t.Buckets))
	for i := range t.Buckets {
		b := &t.Buckets[i]
		var err error
		if asks[i], err = s.engine.Ask(b.Policy, b.Tenant, b.Key, present.Costs(b.Costs)...); err != nil {
			return nil, problem(api.CodeBadToken, "the reservation names a policy that this server does not have")
		}
	}
	res, err := asks[0].Limiter.Resume(t.ID, t.Grant, end, asks...)
	if err != nil {
		return nil, problem(api.CodeBadToken, "the reservation does not fit this server's policies: %s",
			present.Problem(err).Detail)
	}
	return res, nil
}
