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

// statusCancelled is the status for a client that has left.
const statusCancelled = 499

// kinds has the HTTP status and title of each code.
var kinds = map[api.Code]struct {
	status int
	title  string
}{
	api.CodeBadJSON:       {http.StatusBadRequest, "The request cannot be read"},
	api.CodeInvalid:       {http.StatusUnprocessableEntity, "A value is not valid"},
	api.CodeUnknownPolicy: {http.StatusUnprocessableEntity, "Unknown policy"},
	api.CodeUnknownUnit:   {http.StatusUnprocessableEntity, "Unknown unit"},
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
	api.CodeStoreAway:     {http.StatusServiceUnavailable, "The store is unavailable"},
	api.CodeClosing:       {http.StatusServiceUnavailable, "The server is stopping"},
	api.CodeCancelled:     {statusCancelled, "The client has left"},
}

func problem(code api.Code, format string, args ...any) *api.Problem {
	k := kinds[code]
	return &api.Problem{Type: "about:blank", Title: k.title, Status: k.status, Code: code, Detail: fmt.Sprintf(format, args...)}
}

// Problem converts an error of the library to its wire form. Details from the store are not passed
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
		return problem(api.CodeUnknownPolicy, "unknown policy: %s", text)
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
		return problem(api.CodeIDReused, "this grant of the id is open with other content: use a new grant for each take")
	case errors.Is(err, drawgate.ErrIDOpen):
		return problem(api.CodeIDOpen, "another take has an open reservation with this id: settle or cancel that one first, or use another id; "+
			"to send the same take again, use the same grant")
	case errors.Is(err, drawgate.ErrTooManyOpen):
		return problem(api.CodeTooManyOpen, "%d reservations are open in one of the buckets, which is the maximum: settle finished ones, use shorter holds, or use more keys", drawgate.MaxOpen)
	case errors.Is(err, drawgate.ErrInvalid):
		return problem(api.CodeInvalid, "%s", strings.TrimPrefix(text, "invalid argument: "))
	case errors.Is(err, drawgate.ErrClosed):
		return problem(api.CodeClosing, "this server is stopping: ask another one, or try again in a moment")
	case errors.Is(err, context.Canceled):
		return problem(api.CodeCancelled, "the client has left; %s", spent(err))
	case mayHaveSpent(err):
		return problem(api.CodeStoreAway, "the time ran out during the call to the store; %s", spent(err))
	}
	return problem(api.CodeStoreAway, "the store could not decide; the server's log says why")
}

// mayHaveSpent reports whether a take ended during the call to the store, so that its units may be
// spent or held: that is unknown, and nothing cancels it.
func mayHaveSpent(err error) bool {
	e, ok := errors.AsType[*drawgate.GaveUpError](err)
	return ok && e.MaySpend
}

// spent describes the fate of the units of a take that ended without an answer.
func spent(err error) string {
	if mayHaveSpent(err) {
		return "the call to the store was running, so units may be spent, or held by the take's grant"
	}
	return "nothing was spent, or it was given back"
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
	p := Problem(err)
	if s.drain.Err() != nil && p.Code == api.CodeCancelled {
		if p = Problem(drawgate.ErrClosed); mayHaveSpent(err) {
			p.Detail = "this server is stopping; " + spent(err)
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
