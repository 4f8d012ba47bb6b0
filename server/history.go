package server

import (
	"bufio"
	"encoding/json"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/api"
	"github.com/drawgate/drawgate/internal/present"
	"github.com/drawgate/drawgate/store"
)

var linesType = []string{api.HistoryType}

// historyDefault is how far back a history goes that does not say since when.
const historyDefault = 24 * time.Hour

// firstLines is how many bytes of a history are collected before the answer begins: until then a
// failing store is a problem, not an answer that is cut.
const firstLines = 64 << 10

// history serves GET /v1/history: one event per line, the oldest first. If the store fails after
// the first line, the connection is cut, so that nobody takes a part for the whole.
func (s *Server) history(w http.ResponseWriter, r *http.Request, who *access) {
	journal, ok := s.store.(store.Journal)
	q, p := historyQuery(r.URL.Query(), who)
	if p == nil && !ok {
		p = problem(api.CodeNotSupported, "the store keeps no history: only SQLite and PostgreSQL do")
	}
	if p != nil {
		writeProblem(w, p)
		return
	}
	out := newLines(w)
	err := journal.Read(r.Context(), q.EventQuery, func(e store.Event) bool {
		switch {
		case q.newest.Most > 0:
			q.newest.Add(&e)
		default:
			out.event(&e)
		}
		return out.err == nil && r.Context().Err() == nil
	})
	if err == nil {
		err = r.Context().Err()
	}
	switch {
	case err != nil && !out.begun:
		writeProblem(w, s.fail(err))
		return
	case err != nil:
		panic(http.ErrAbortHandler) //nolint:forbidigo // the documented way to abort an answer
	}
	for e := range q.newest.All {
		out.event(e)
	}
	out.end()
}

// lines writes events, many at a time.
type lines struct {
	w     http.ResponseWriter
	c     *http.ResponseController
	buf   *bufio.Writer
	json  *json.Encoder
	begun bool
	err   error
}

func newLines(w http.ResponseWriter) *lines {
	l := &lines{w: w, c: http.NewResponseController(w)}
	l.buf = bufio.NewWriterSize(l, firstLines)
	l.json = json.NewEncoder(l.buf)
	l.json.SetEscapeHTML(false)
	return l
}

func (l *lines) event(e *store.Event) {
	if l.err == nil {
		l.err = l.json.Encode(present.Event(e))
	}
}

// Write sends what has been collected. Its reader has time until the next call. A writer without
// deadlines needs none.
func (l *lines) Write(b []byte) (int, error) {
	l.begin()
	_ = l.c.SetWriteDeadline(time.Now().Add(listTimeout))
	return l.w.Write(b)
}

func (l *lines) begin() {
	if l.begun {
		return
	}
	l.begun = true
	h := l.w.Header()
	h["Content-Type"] = linesType
	h["Cache-Control"] = noStore
	h["X-Content-Type-Options"] = noSniff
	l.w.WriteHeader(http.StatusOK)
}

func (l *lines) end() {
	l.begin()
	if l.err == nil {
		_ = l.buf.Flush() // a reader that has gone misses nothing that it wants
	}
}

// events says which events are asked for.
type events struct {
	store.EventQuery
	newest present.Newest
}

func historyQuery(values url.Values, who *access) (q events, p *api.Problem) {
	q.From = time.Now().Add(-historyDefault)
	tenant := ""
	for name, all := range values {
		v := all[len(all)-1]
		var err error
		switch name {
		case "since":
			q.From, err = time.Parse(time.RFC3339, v)
		case "until":
			q.To, err = time.Parse(time.RFC3339, v)
		case "policy":
			q.Policy = v
		case "tenant":
			tenant = v
		case "key":
			q.Key = &v
		case "op":
			q.Op = v
		case "label":
			q.Labels, p = historyLabels(all)
		case "last":
			if q.newest.Most, err = strconv.Atoi(v); err != nil || q.newest.Most < 1 || q.newest.Most > api.MaxLast {
				return q, problem(api.CodeInvalid, "last %q is not a number from 1 to %d", v, api.MaxLast)
			}
		default:
			return q, problem(api.CodeInvalid, "%q is not one of since, until, policy, tenant, key, op, label and last",
				name)
		}
		if err != nil {
			return q, problem(api.CodeInvalid, "%s is not an instant such as 2026-07-01T00:00:00Z", name)
		}
		if p != nil {
			return q, p
		}
	}
	switch {
	case q.Op != "" && !slices.Contains(api.EventOps(), q.Op):
		return q, problem(api.CodeInvalid, "op %q is not one of %s", q.Op, strings.Join(api.EventOps(), ", "))
	case !q.To.IsZero() && !q.To.After(q.From):
		return q, problem(api.CodeInvalid, "until is not after since: nothing lies between them")
	}
	if tenant, p = who.tenantOf(tenant); values.Has("tenant") || tenant != "" {
		q.Tenant = &tenant
	}
	return q, p
}

func historyLabels(all []string) (out []drawgate.Label, p *api.Problem) {
	for _, text := range all {
		name, value, ok := strings.Cut(text, "=")
		if !ok || name == "" {
			return nil, problem(api.CodeInvalid, "label %q is not NAME=VALUE", text)
		}
		out = append(out, drawgate.Label{Name: name, Value: value})
	}
	return out, nil
}
