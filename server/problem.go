package server

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/api"
	"github.com/drawgate/drawgate/engine"
	"github.com/drawgate/drawgate/engine/rules"
)

// statusCancelled is what is answered to a client that is not there any more.
const statusCancelled = 499

// kinds says which HTTP status and title a code has.
var kinds = map[api.Code]struct {
	status int
	title  string
}{
	api.CodeBadJSON:       {http.StatusBadRequest, "The request is not understood"},
	api.CodeInvalid:       {http.StatusUnprocessableEntity, "A value is not valid"},
	api.CodeUnknownPolicy: {http.StatusUnprocessableEntity, "The policy is not known"},
	api.CodeUnknownUnit:   {http.StatusUnprocessableEntity, "The unit is not known"},
	api.CodeNeverFits:     {http.StatusUnprocessableEntity, "The cost can never fit"},
	api.CodeNeedsHold:     {http.StatusUnprocessableEntity, "The take needs a hold"},
	api.CodeBadToken:      {http.StatusUnprocessableEntity, "The reservation is not valid"},
	api.CodeIDReused:      {http.StatusConflict, "The id is in use"},
	api.CodeIDOpen:        {http.StatusConflict, "The id is in use"},
	api.CodeTooManyOpen:   {http.StatusTooManyRequests, "Too many reservations are open"},
	api.CodeTooLarge:      {http.StatusRequestEntityTooLarge, "The request is too large"},
	api.CodeNotFound:      {http.StatusNotFound, "Not found"},
	api.CodeBadMethod:     {http.StatusMethodNotAllowed, "The method is not allowed"},
	api.CodeCrossOrigin:   {http.StatusForbidden, "Another origin"},
	api.CodeUnauthorized:  {http.StatusUnauthorized, "An access token is needed"},
	api.CodeForbidden:     {http.StatusForbidden, "The access token does not allow this"},
	api.CodeUntrusted:     {http.StatusForbidden, "Not a trusted proxy"},
	api.CodeRuleFailed:    {http.StatusUnprocessableEntity, "A rule failed"},
	api.CodeNotSupported:  {http.StatusNotImplemented, "Not supported"},
	api.CodeNotReloaded:   {http.StatusUnprocessableEntity, "The configuration was not reloaded"},
	api.CodeLimited:       {http.StatusTooManyRequests, "Too many requests"},
	api.CodeStoreAway:     {http.StatusServiceUnavailable, "The store is away"},
	api.CodeClosing:       {http.StatusServiceUnavailable, "The server is stopping"},
	api.CodeCancelled:     {statusCancelled, "The client went away"},
}

func problem(code api.Code, format string, args ...any) *api.Problem {
	k := kinds[code]
	return &api.Problem{Type: "about:blank", Title: k.title, Status: k.status, Code: code, Detail: fmt.Sprintf(format, args...)}
}

// Problem says on the wire what an error of the library means. What the store said is not passed
// on.
func Problem(err error) *api.Problem {
	if p, ok := errors.AsType[*api.Problem](err); ok {
		return p
	}
	text := strings.TrimPrefix(strings.TrimPrefix(err.Error(), "drawgate: "), "engine: ")
	if failed, ok := errors.AsType[*rules.Error](err); ok { // it never shows a value
		return problem(api.CodeRuleFailed, "%s", strings.TrimPrefix(failed.Error(), "rules: "))
	}
	switch {
	case errors.Is(err, engine.ErrUnknownPolicy):
		return problem(api.CodeUnknownPolicy, "there is no such policy: %s", text)
	case errors.Is(err, engine.ErrOtherTenant):
		return problem(api.CodeForbidden, "this access token is bound to a tenant: %s", text)
	case errors.Is(err, engine.ErrTooMany):
		return problem(api.CodeInvalid, "%s: let fewer rules apply policies", text)
	case errors.Is(err, drawgate.ErrNeverFits):
		return problem(api.CodeNeverFits, "%s", text)
	case errors.Is(err, drawgate.ErrUnknownUnit):
		return problem(api.CodeUnknownUnit, "%s", text)
	case errors.Is(err, drawgate.ErrNeedsReserve):
		return problem(api.CodeNeedsHold, "the policy has a concurrency limit: give hold_ms, and settle the reservation when the work is done")
	case errors.Is(err, drawgate.ErrIDReused):
		return problem(api.CodeIDReused, "this grant of the id is open, with other content: give each take a grant of its own")
	case errors.Is(err, drawgate.ErrIDOpen):
		return problem(api.CodeIDOpen, "a reservation with this id is open, of another take: settle or cancel that one first, or use another id; "+
			"whoever sends a take again sends the grant of the first time with it")
	case errors.Is(err, drawgate.ErrTooManyOpen):
		return problem(api.CodeTooManyOpen, "%d reservations are open in one of the buckets: settle what is done, hold for a shorter time, or use more keys", drawgate.MaxOpen)
	case errors.Is(err, drawgate.ErrInvalid):
		return problem(api.CodeInvalid, "%s", strings.TrimPrefix(text, "invalid argument: "))
	case errors.Is(err, drawgate.ErrClosed):
		return problem(api.CodeClosing, "this server is stopping: ask another one, or again in a moment")
	case errors.Is(err, context.Canceled):
		return problem(api.CodeCancelled, "the client went away; %s", spent(err))
	case mayHaveSpent(err):
		return problem(api.CodeStoreAway, "the time was over while the store was asked; %s", spent(err))
	}
	return problem(api.CodeStoreAway, "the store could not decide; the server's log says why")
}

// mayHaveSpent reports whether a take ended while the store was asked and its units may be spent,
// or held: nobody knows, and nothing cancels it.
func mayHaveSpent(err error) bool {
	e, ok := errors.AsType[*drawgate.GaveUpError](err)
	return ok && e.MaySpend
}

// spent says what has become of the units of a take that ended without an answer.
func spent(err error) string {
	if mayHaveSpent(err) {
		return "the store was just asked, so units may be spent, or held by the take's grant"
	}
	return "nothing was spent, or what was held is given back"
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

// warnEvery is how often a store that stays away is logged.
const warnEvery = 10 * time.Second

// fail makes a problem of an error, and logs what the client is not told.
func (s *Server) fail(err error) *api.Problem {
	p := Problem(err)
	if s.drain.Err() != nil && p.Code == api.CodeCancelled {
		if p = Problem(drawgate.ErrClosed); mayHaveSpent(err) {
			p.Detail = "this server is stopping; " + spent(err)
		}
	}
	if p.Code == api.CodeStoreAway {
		s.warn("the store is away", err)
	}
	return p
}

func (s *Server) warn(text string, err error) {
	now, last := time.Now().UnixNano(), s.warned.Load()
	if now-last > int64(warnEvery) && s.warned.CompareAndSwap(last, now) {
		s.log.Warn(text, "error", err)
	}
}
