package simulator

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"
)

// likeOpenAI returns the dialect of a provider whose API is OpenAI's with differences. It is behind
// /PROVIDER only. Without its own words it has no headers of limits, and refuses as OpenAI does.
func likeOpenAI(p Provider, change func(*dialect)) *dialect {
	d := *openAIDialect
	d.provider, d.apart = p, true
	d.headers = func(x *exchange, h http.Header) { h.Set("X-Request-Id", x.requestID("req_")) }
	change(&d)
	return &d
}

// chatOf returns the operation chat completions with fields that the provider passes over.
func chatOf(ignored ...string) *api {
	chat := *openAIDialect.apis["/v1/chat/completions"]
	parse := chat.parse
	chat.parse = func(r *http.Request, body []byte, q *request) error {
		var all map[string]json.RawMessage
		if json.Unmarshal(body, &all) == nil {
			for name := range all {
				for _, field := range ignored {
					if strings.EqualFold(name, field) {
						delete(all, name)
					}
				}
			}
			body = encode(all)
		}
		return parse(r, body, q)
	}
	return &chat
}

// wording is how a provider refuses, where it is not as OpenAI does.
type wording struct {
	body func(status int, message, kind string, code any) object
	// quota is for a limit that is full, and may set headers.
	quota  func(x *exchange, r Refusal, h http.Header) (message, kind string)
	credit func() (status int, message, kind string)
}

func (w wording) refuse(x *exchange, f failure, h http.Header) (status int, body any) {
	status, body = refuseOpenAI(x, f, h)
	e := body.(object)["error"].(object)
	message, kind := e["message"].(string), e["type"].(string)
	switch fault := f.fault; {
	case w.quota != nil && f.reason == overQuota:
		message, kind = w.quota(x, longest(x.call.Refusals), h)
	case w.quota != nil && f.reason == faulty && (fault == FaultMinute || fault == FaultDay):
		message, kind = w.quota(x, x.pretend(fault), h)
	case w.credit != nil && f.reason == faulty && (fault == FaultCredit || fault == FaultSpendCap):
		status, message, kind = w.credit()
	}
	if w.body == nil {
		e["message"], e["type"] = message, kind
		return status, body
	}
	return status, w.body(status, message, kind, e["code"])
}

// toldLimit are the headers of one limit. reset may be "".
type toldLimit struct {
	dimension               Dimension
	day                     bool // otherwise a minute
	limit, remaining, reset string
	seconds                 int64 // the limit is told per so many seconds; 0: as it is
}

// tell describes the limits of which the smallest part remains.
func (x *exchange) tell(h http.Header, all ...toldLimit) {
	for _, n := range all {
		s := x.tightest(func(l *limit) bool { return l.Dimension == n.dimension && (l.Window == Day) == n.day })
		if s == nil {
			continue
		}
		amount, remaining := s.limit.Amount, s.remaining
		if n.seconds > 0 {
			amount, remaining = max(1, amount/n.seconds), remaining/n.seconds
		}
		h.Set(n.limit, fmt.Sprint(amount))
		h.Set(n.remaining, fmt.Sprint(remaining))
		if n.reset != "" && s.full >= 0 {
			h.Set(n.reset, shortDuration(s.full))
		}
	}
}

// retryAfter says when to come back, in whole seconds.
func retryAfter(h http.Header, r Refusal) {
	if r.RetryAfter >= 0 {
		h.Set("Retry-After", fmt.Sprint(int64((r.RetryAfter+time.Second-1)/time.Second)))
	}
}
