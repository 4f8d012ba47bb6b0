package server

import (
	"cmp"
	"context"
	"net/http"
	"slices"
	"time"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/api"
	"github.com/drawgate/drawgate/engine"
	"github.com/drawgate/drawgate/internal/present"
)

// work is the memory of one request to take, which is reused.
type work struct {
	body, text []byte
	q          api.TakeRequest
	job        job
}

// job is the memory of one take.
type job struct {
	req    engine.Request
	res    engine.Result
	draft  present.Draft
	answer api.Answer
}

// keptBuffer is the size in bytes up to which a buffer is reused.
const keptBuffer = 64 << 10

// done returns work to the pool, without what belonged to the request.
func (s *Server) done(k *work) {
	if cap(k.body) > keptBuffer || cap(k.text) > keptBuffer {
		return
	}
	k.q = api.TakeRequest{}
	k.job.clear()
	s.pool.Put(k)
}

func (j *job) clear() {
	clear(j.req.Asks)
	j.req = engine.Request{Asks: j.req.Asks[:0]}
	j.answer = api.Answer{Limits: j.answer.Limits[:0]}
}

// take serves POST /v1/take.
func (s *Server) take(w http.ResponseWriter, r *http.Request, who *access) {
	arrived := time.Now()
	k := s.pool.Get().(*work)
	defer s.done(k)
	var p *api.Problem
	if k.body, p = s.body(w, r, k.body); p == nil && !scanTake(k.body, &k.q) {
		k.q = api.TakeRequest{}
		p = parse(k.body, &k.q)
	}
	var out api.TakeAnswer
	switch {
	case p != nil:
	case k.q.Takes == nil && k.q.WaitMS > 0 && wantsProgress(r):
		s.takeTelling(w, r, who, arrived, k)
		return
	case k.q.Takes == nil:
		out.Answer, p = &k.job.answer, s.takeOne(r.Context(), w, who, arrived, k)
	default:
		out.Answers, p = s.takeBatch(w, r, who, arrived, &k.q)
	}
	if p != nil {
		writeProblem(w, p)
		return
	}
	k.text = append(appendTakeAnswer(k.text[:0], &out), '\n')
	write(w, http.StatusOK, jsonType, k.text)
}

// takeTelling answers a take that waits with its progress, and then the answer.
func (s *Server) takeTelling(w http.ResponseWriter, r *http.Request, who *access, arrived time.Time, k *work) {
	s.extendDeadlines(w, arrived, k.q.WaitMS)
	lines := newProgress(w)
	defer lines.end()
	held, p := s.decide(drawgate.WithProgress(r.Context(), lines.tell), who, arrived, &k.q.Take, &k.job)
	lines.end()
	if s.leave(r.Context(), held) { // whoever has not read the lines may have left only now
		p = leftProblem()
	}
	if p != nil && !lines.started {
		writeProblem(w, p)
		return
	}
	if p != nil {
		k.job.answer = api.Answer{Error: p}
	}
	k.text = append(appendTakeAnswer(k.text[:0], &api.TakeAnswer{Answer: &k.job.answer}), '\n')
	lines.answer(k.text)
}

func (s *Server) takeOne(ctx context.Context, w http.ResponseWriter, who *access, arrived time.Time,
	k *work,
) *api.Problem {
	s.extendDeadlines(w, arrived, k.q.WaitMS)
	held, p := s.decide(ctx, who, arrived, &k.q.Take, &k.job)
	if s.leave(ctx, held) {
		return leftProblem()
	}
	return p
}

func leftProblem() *api.Problem {
	return problem(api.CodeCancelled, "the client closed the connection; what was held for it is given back")
}

func (s *Server) takeBatch(w http.ResponseWriter, r *http.Request, who *access, arrived time.Time,
	q *api.TakeRequest,
) ([]api.Answer, *api.Problem) {
	if p := checkBatch(q); p != nil {
		return nil, p
	}
	s.extendDeadlines(w, arrived, slices.MaxFunc(q.Takes, func(a,
		b api.Take,
	) int {
		return cmp.Compare(a.WaitMS, b.WaitMS)
	}).WaitMS)
	answers := make([]api.Answer, len(q.Takes))
	held := make([]*engine.Result, len(q.Takes))
	for i := range q.Takes {
		var j job
		held[i], j.answer.Error = s.decide(r.Context(), who, arrived, &q.Takes[i], &j)
		answers[i] = j.answer
	}
	s.leave(r.Context(), held...)
	return answers, nil
}

// leave gives holds back if the client is no longer there to settle them, and reports whether it
// did.
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

func checkBatch(q *api.TakeRequest) *api.Problem {
	if n := len(q.Takes); n == 0 || n > api.MaxTakes {
		return problem(api.CodeInvalid, "takes has %d elements, not 1 to %d", n, api.MaxTakes)
	}
	t := &q.Take
	if named(&t.Bucket) || t.Costs != nil || t.Buckets != nil || t.Attributes != nil || t.Priority != 0 ||
		t.WaitMS != 0 || t.HoldMS != 0 || t.ID != "" || t.Grant != "" || t.Labels != nil {
		return problem(api.CodeInvalid, "a batch has no fields other than takes: move them into each take")
	}
	return nil
}

// extendDeadlines keeps the connection open during a wait.
func (s *Server) extendDeadlines(w http.ResponseWriter, arrived time.Time, waitMS int64) {
	if waitMS <= 0 {
		return
	}
	wait := min(time.Duration(min(waitMS, api.MaxWait.Milliseconds()))*time.Millisecond, api.MaxWait)
	c := http.NewResponseController(w)
	// Writers without deadlines, as in tests, need no extension.
	// a read deadline would end the wait: the server keeps reading to notice when the client leaves
	_ = c.SetReadDeadline(time.Time{})
	_ = c.SetWriteDeadline(arrived.Add(wait + writeTimeout))
}

// decide decides one take into j, which is empty. held is what it holds if this server chose the
// grant, so that nobody but this client knows it. A client that chose the grant may be sending the
// take again, so only that client may give it up.
func (s *Server) decide(ctx context.Context, who *access, arrived time.Time, t *api.Take, j *job) (held *engine.Result,
	p *api.Problem,
) {
	if p := s.request(who, t, &j.req); p != nil {
		return nil, p
	}
	if s.closed.Load() {
		return nil, present.Problem(drawgate.ErrClosed)
	}
	late := j.req.Wait && s.drain.Err() != nil
	if late { // it may not wait, but what fits now is allowed
		j.req.Wait = false
	}
	if j.req.Wait {
		var end, stop context.CancelFunc
		ctx, stop = context.WithCancel(ctx)
		defer stop()
		defer context.AfterFunc(s.drain, stop)() //nolint:contextcheck // it ends the wait, whose context is the request's
		ctx, end = context.WithDeadlineCause(ctx, arrived.Add(time.Duration(t.WaitMS)*time.Millisecond),
			drawgate.ErrDeadline)
		defer end()
	}
	if err := s.engine.TakeInto(ctx, &j.req, &j.res); err != nil {
		j.answer, p = s.refused(ctx, &j.req, &j.res, err)
	} else {
		j.draft.Decide(&j.answer, &j.res.Decision)
	}
	if late && p == nil && !j.answer.Allowed {
		j.answer, p = api.Answer{}, present.Problem(drawgate.ErrClosed)
	}
	if p != nil {
		return nil, p
	}
	present.AddResult(&j.answer, &j.res, t.Attributes != nil)
	if j.res.Reservation == nil {
		return nil, nil
	}
	if p := s.hold(ctx, &j.answer, &j.res, arrived); p != nil {
		j.answer = api.Answer{}
		return nil, p
	}
	switch {
	case t.Grant == "":
		held = &j.res
	case s.cancelled.has(cancelledMark(&j.req)): // before it arrived, or while it was decided
		s.giveBack(ctx, &j.res)
		j.answer = api.Answer{}
		return nil, problem(api.CodeCancelled,
			"this grant was cancelled before its take was answered; what was held for it is given back")
	}
	return held, nil
}

// cancelledMark identifies a take that its client cancels by its grant, or has cancelled.
func cancelledMark(r *engine.Request) mark { return markOf(r.ID, r.Grant, nil) }

// hold adds to an answer how to settle the reservation.
func (s *Server) hold(ctx context.Context, out *api.Answer, res *engine.Result, arrived time.Time) *api.Problem {
	buckets := heldBuckets(res)
	end := res.Reservation.Deadline()
	out.HoldEnd, out.HoldMS = new(end.UTC().Truncate(time.Millisecond)), max(1, end.Sub(arrived).Milliseconds())
	id, grant := res.Reservation.ID(), res.Reservation.Grant()
	out.Reservation, out.Grant = newToken(id, grant, end, buckets), grant.String()
	if n := len(out.Reservation); n > maxToken { // only possible with attributes, because the rules choose the buckets
		s.giveBack(ctx, res)
		return tokenTooLarge(n)
	}
	s.issued.add(markOf(id, grant, buckets), shadowsOf(res))
	return nil
}
