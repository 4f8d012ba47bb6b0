package present

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/drawgate/drawgate/api"
	"github.com/drawgate/drawgate/engine"
	"github.com/drawgate/drawgate/engine/rules"
	"github.com/drawgate/drawgate/internal/failure"
	"github.com/drawgate/drawgate/store"
)

// statusCancelled is the status for a client that closed the connection.
const statusCancelled = 499

// kinds has the HTTP status and title of each code.
var kinds = map[api.Code]struct {
	status int
	title  string
}{
	api.CodeBadJSON:          {http.StatusBadRequest, "The request cannot be read"},
	api.CodeInvalid:          {http.StatusUnprocessableEntity, "A value is not valid"},
	api.CodeUnknownPolicy:    {http.StatusUnprocessableEntity, "Unknown policy"},
	api.CodeUnknownUnit:      {http.StatusUnprocessableEntity, "Unknown unit"},
	api.CodeNeverFits:        {http.StatusUnprocessableEntity, "The cost can never fit"},
	api.CodeNeedsHold:        {http.StatusUnprocessableEntity, "The take needs a hold"},
	api.CodeBadToken:         {http.StatusUnprocessableEntity, "The reservation is not valid"},
	api.CodeIDReused:         {http.StatusConflict, "The id is in use"},
	api.CodeIDOpen:           {http.StatusConflict, "The id is in use"},
	api.CodeUnknownKey:       {http.StatusNotFound, "Unknown key"},
	api.CodeKeyExists:        {http.StatusConflict, "The key exists"},
	api.CodeKeyConflict:      {http.StatusConflict, "The key has changed"},
	api.CodeTooManyOpen:      {http.StatusTooManyRequests, "Too many reservations are open"},
	api.CodeTooLarge:         {http.StatusRequestEntityTooLarge, "The request is too large"},
	api.CodeNotFound:         {http.StatusNotFound, "Not found"},
	api.CodeBadMethod:        {http.StatusMethodNotAllowed, "The method is not allowed"},
	api.CodeCrossOrigin:      {http.StatusForbidden, "Cross-origin requests are not allowed"},
	api.CodeUnauthorized:     {http.StatusUnauthorized, "An access token is needed"},
	api.CodeForbidden:        {http.StatusForbidden, "The access token does not allow this"},
	api.CodeUntrusted:        {http.StatusForbidden, "Not a trusted proxy"},
	api.CodeRuleFailed:       {http.StatusUnprocessableEntity, "A rule failed"},
	api.CodeNotSupported:     {http.StatusNotImplemented, "Not supported"},
	api.CodeNotReloaded:      {http.StatusUnprocessableEntity, "The configuration was not reloaded"},
	api.CodeLimited:          {http.StatusTooManyRequests, "Too many requests"},
	api.CodeStoreUnavailable: {http.StatusServiceUnavailable, "The store is unavailable"},
	api.CodeClosing:          {http.StatusServiceUnavailable, "The server is stopping"},
	api.CodeCancelled:        {statusCancelled, "The client closed the connection"},
}

// Codes returns all codes of problems, in no order.
func Codes() []api.Code { return slices.Collect(maps.Keys(kinds)) }

// Problemf returns the problem of a code, with its status and title.
func Problemf(code api.Code, format string, args ...any) *api.Problem {
	k := kinds[code]
	return &api.Problem{
		Type: "about:blank", Title: k.title, Status: k.status, Code: code,
		Detail: fmt.Sprintf(format, args...),
	}
}

// Problem converts an error of the library to its wire form. Details from the store are not passed
// on.
func Problem(err error) *api.Problem {
	if p, ok := errors.AsType[*api.Problem](err); ok {
		return p
	}
	text := strings.TrimPrefix(strings.TrimPrefix(err.Error(), "drawgate: "), "engine: ")
	if failed, ok := errors.AsType[*rules.Error](err); ok { // it never shows a value
		return Problemf(api.CodeRuleFailed, "%s", strings.TrimPrefix(failed.Error(), "rules: "))
	}
	switch {
	case errors.Is(err, engine.ErrUnknownPolicy):
		return Problemf(api.CodeUnknownPolicy, "unknown policy: %s", text)
	case errors.Is(err, engine.ErrOtherTenant):
		return Problemf(api.CodeForbidden, "this access token is bound to a tenant: %s", text)
	case errors.Is(err, engine.ErrTooMany):
		return Problemf(api.CodeInvalid, "%s: change the rules so that fewer of them match this request", text)
	}
	switch failure.Of(err) {
	case failure.NeverFits:
		return Problemf(api.CodeNeverFits, "%s", text)
	case failure.UnknownUnit:
		return Problemf(api.CodeUnknownUnit, "%s", text)
	case failure.NeedsReserve:
		return Problemf(api.CodeNeedsHold,
			"the policy has a concurrency limit: give hold_ms, and settle the reservation when the work is done")
	case failure.IDReused:
		return Problemf(api.CodeIDReused,
			"this grant of the id is open with different content: use a new grant for each take")
	case failure.IDOpen:
		return Problemf(api.CodeIDOpen,
			"another take has an open reservation with this id: settle or cancel that one first, or use another id; "+
				"to send the same take again, use the same grant")
	case failure.TooManyOpen:
		return Problemf(api.CodeTooManyOpen,
			"%d reservations are open in one of the buckets, which is the maximum: settle finished ones, use shorter holds, or use more keys", store.MaxOpen)
	case failure.Invalid:
		return Problemf(api.CodeInvalid, "%s", strings.TrimPrefix(text, "invalid argument: "))
	case failure.Closed:
		return Problemf(api.CodeClosing, "this server is stopping: ask another one, or try again in a moment")
	case failure.Cancelled:
		return Problemf(api.CodeCancelled, "the client closed the connection; %s", Spent(err))
	}
	if failure.MaySpend(err) {
		return Problemf(api.CodeStoreUnavailable, "the time ran out during the call to the store; %s", Spent(err))
	}
	return Problemf(api.CodeStoreUnavailable, "the store could not decide; the server's log says why")
}

// Spent describes the fate of the units of a take that ended without an answer.
func Spent(err error) string {
	if failure.MaySpend(err) {
		return "the call to the store was running, so units may be spent, or held by the take's grant"
	}
	return "nothing was spent, or it was given back"
}
