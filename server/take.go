package server

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"slices"
	"time"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/api"
	"github.com/drawgate/drawgate/engine"
)

// take serves POST /v1/take.
func (s *Server) take(w http.ResponseWriter, r *http.Request, who *access) {
	arrived := time.Now()
	body, done, p := s.body(w, r)
	if p != nil {
		writeProblem(w, p)
		return
	}
	defer done()
	var q api.TakeRequest
	if !scanTake(body, &q) {
		q = api.TakeRequest{}
		if p := parse(body, &q); p != nil {
			writeProblem(w, p)
			return
		}
	}
	var out api.TakeAnswer
	if q.Takes == nil {
		out.Answer, p = s.takeOne(w, r, who, arrived, &q.Take)
	} else {
		out.Answers, p = s.takeBatch(w, r, who, arrived, &q)
	}
	if p != nil {
		writeProblem(w, p)
		return
	}
	text := s.bodies.Get().(*[]byte)
	*text = append(appendTakeAnswer((*text)[:0], &out), '\n')
	write(w, http.StatusOK, jsonType, *text)
	s.bodies.Put(text)
}

func (s *Server) takeOne(w http.ResponseWriter, r *http.Request, who *access, arrived time.Time, t *api.Take) (*api.Answer, *api.Problem) {
	s.patient(w, arrived, t.WaitMS)
	a, held, p := s.decide(r.Context(), who, arrived, t)
	if s.leave(r.Context(), held) {
		return nil, problem(api.CodeCancelled, "the client went away; nothing was spent")
	}
	return &a, p
}

func (s *Server) takeBatch(w http.ResponseWriter, r *http.Request, who *access, arrived time.Time, q *api.TakeRequest) ([]api.Answer, *api.Problem) {
	if p := checkBatch(q); p != nil {
		return nil, p
	}
	s.patient(w, arrived, slices.MaxFunc(q.Takes, func(a, b api.Take) int { return cmp.Compare(a.WaitMS, b.WaitMS) }).WaitMS)
	answers := make([]api.Answer, len(q.Takes))
	held := make([]*engine.Result, len(q.Takes))
	for i := range q.Takes {
		answers[i], held[i], answers[i].Error = s.decide(r.Context(), who, arrived, &q.Takes[i])
	}
	s.leave(r.Context(), held...)
	return answers, nil
}

// leaveTimeout bounds giving back what a client that went away was granted.
const leaveTimeout = 5 * time.Second

// leave gives holds back if the client is not there any more to settle them, and reports whether it did.
func (s *Server) leave(ctx context.Context, held ...*engine.Result) (left bool) {
	if ctx.Err() == nil {
		return false
	}
	for _, res := range held {
		if res != nil {
			s.giveBack(ctx, res)
			left = true
		}
	}
	return left
}

// giveBack cancels a hold that nobody knows of, whatever has become of ctx.
func (s *Server) giveBack(ctx context.Context, res *engine.Result) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), leaveTimeout)
	defer cancel()
	if err := res.Cancel(ctx); err != nil && !errors.Is(err, drawgate.ErrGone) { // its hold will end, as used
		s.warn("what a client that went away holds was not given back", err)
	}
}

func checkBatch(q *api.TakeRequest) *api.Problem {
	if n := len(q.Takes); n == 0 || n > api.MaxTakes {
		return problem(api.CodeInvalid, "takes has %d elements, not 1 to %d", n, api.MaxTakes)
	}
	t := &q.Take
	if named(&t.Bucket) || t.Costs != nil || t.Buckets != nil || t.Attributes != nil || t.Priority != 0 || t.WaitMS != 0 || t.HoldMS != 0 || t.ID != "" || t.Labels != nil {
		return problem(api.CodeInvalid, "a batch has no other field than takes: give each take its own")
	}
	return nil
}

// patient lets the connection outlive a wait.
func (s *Server) patient(w http.ResponseWriter, arrived time.Time, waitMS int64) {
	if waitMS <= 0 {
		return
	}
	wait := min(time.Duration(min(waitMS, api.MaxWait.Milliseconds()))*time.Millisecond, api.MaxWait)
	c := http.NewResponseController(w)
	// A writer that knows no deadlines, as in tests, has none to move.
	_ = c.SetReadDeadline(time.Time{}) // it would end the wait: the server reads on to see whether the client is there
	_ = c.SetWriteDeadline(arrived.Add(wait + writeTimeout))
}

// decide decides one take. held is what it holds, if nobody but this client can know of it: who named an id may ask for it again, and have it.
func (s *Server) decide(ctx context.Context, who *access, arrived time.Time, t *api.Take) (out api.Answer, held *engine.Result, p *api.Problem) {
	var req engine.Request
	if p := s.request(who, t, &req); p != nil {
		return out, nil, p
	}
	if s.closed.Load() {
		return out, nil, Problem(drawgate.ErrClosed)
	}
	if req.Wait {
		var end, stop context.CancelFunc
		ctx, stop = context.WithCancel(ctx)
		defer stop()
		defer context.AfterFunc(s.drain, stop)() //nolint:contextcheck // it ends the wait, whose context is the request's
		ctx, end = context.WithDeadlineCause(ctx, arrived.Add(time.Duration(t.WaitMS)*time.Millisecond), drawgate.ErrDeadline)
		defer end()
	}
	var res engine.Result
	if err := s.engine.TakeInto(ctx, &req, &res); err != nil {
		out, p = s.refused(ctx, &req, &res, err)
		return out, nil, p
	}
	out = Answer(&res.Decision, t.Priority)
	describe(&out, &res, t)
	if res.Reservation == nil {
		return out, nil, nil
	}
	if p := s.hold(ctx, &out, &res); p != nil {
		return api.Answer{}, nil, p
	}
	if t.ID == "" {
		held = &res
	}
	return out, held, nil
}

// hold says in an answer how to settle what was reserved.
func (s *Server) hold(ctx context.Context, out *api.Answer, res *engine.Result) *api.Problem {
	buckets := heldBuckets(res)
	end := res.Reservation.Deadline()
	out.HoldEnd = new(end.UTC().Truncate(time.Millisecond))
	out.Reservation = newToken(res.Reservation.ID(), end, buckets)
	if n := len(out.Reservation); n > maxToken { // of attributes: nobody knows before what the rules make of them
		s.giveBack(ctx, res)
		return tokenTooLarge(n)
	}
	s.given.add(markOf(res.Reservation.ID(), buckets), besideOf(res))
	return nil
}
