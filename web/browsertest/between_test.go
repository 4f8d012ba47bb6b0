package browsertest

import (
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
)

// proxy stands between the page and a server. If instead is not nil, it answers what is no file of
// the page.
type proxy struct {
	*httptest.Server
	to      atomic.Pointer[url.URL]
	instead atomic.Pointer[http.HandlerFunc]
}

func (s *server) behindProxy() *proxy {
	s.t.Helper()
	p := &proxy{}
	p.forward(s)
	on := &httputil.ReverseProxy{
		Rewrite:      func(r *httputil.ProxyRequest) { r.SetURL(p.to.Load()) },
		ErrorHandler: func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) },
	}
	p.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if f := p.instead.Load(); f != nil && r.URL.Path != "/" && !strings.HasPrefix(r.URL.Path, "/page/") {
			(*f)(w, r)
			return
		}
		on.ServeHTTP(w, r)
	}))
	s.t.Cleanup(p.Close)
	return p
}

// forward chooses the server.
func (p *proxy) forward(s *server) {
	s.t.Helper()
	to, err := url.Parse(s.admin)
	if err != nil {
		s.t.Fatal(err)
	}
	p.to.Store(to)
}

// answer lets the proxy answer in place of the server; nil: no longer.
func (p *proxy) answer(f http.HandlerFunc) {
	if f == nil {
		p.instead.Store(nil)
		return
	}
	p.instead.Store(&f)
}

// Where a proxy answers in place of the server, the page says so, and what it is that answers.
func TestSomethingElseAnswers(t *testing.T) {
	s := serve(t, simple)
	s.take(fields{"policy": "p", "key": "before"})
	p := s.behindProxy()
	b := open(t, p.URL+"/")
	b.shows("#buckets", "before")
	html := func(status int) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/html; charset=utf-8")
			w.WriteHeader(status)
			_, _ = w.Write([]byte("<!DOCTYPE html><title>Please log in</title>"))
		}
	}
	var followed atomic.Bool
	for _, c := range []struct {
		f    http.HandlerFunc
		want string
	}{
		{html(http.StatusOK), "(status 200, text/html)"},
		{html(http.StatusBadGateway), "(status 502, text/html)"},
		{html(http.StatusUnauthorized), "(status 401, text/html)"},
		{func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/login" {
				followed.Store(true)
			}
			http.Redirect(w, r, "/login", http.StatusFound)
		}, "(a redirect)"},
	} {
		p.answer(c.f)
		b.shows("#away", "Something else answers in place of the server since", "perhaps a proxy "+c.want)
		b.hides("#login")
		b.shows("#buckets", "before")
		b.must(click(b, "#buckets tbody button"))
		b.shows("#detail .note", "Something else answers in place of the server "+c.want)
		b.must(click(b, "#detail button"))
		p.answer(nil)
		b.hides("#away")
	}
	if followed.Load() {
		t.Error("the page followed a redirect")
	}
	b.quiet(p.URL, "/v1/history", "502", "401")
}

// What the history shows is the answer to the last question, whatever comes later.
func TestHistoryOfTheLastQuestion(t *testing.T) {
	s := serve(t, strings.Replace(simple, "memory:", "sqlite:history.db", 1))
	s.take(fields{"policy": "p", "key": "first"})
	p := s.behindProxy()
	b := open(t, p.URL+"/")
	b.shows("#buckets", "first")
	asked, release, done := make(chan struct{}), make(chan struct{}), make(chan struct{})
	var n atomic.Int64
	p.answer(func(w http.ResponseWriter, r *http.Request) {
		_, answer := s.request(r.Method, s.admin+r.URL.RequestURI(), "")
		late := r.URL.Path == "/v1/history" && r.URL.Query().Get("last") != "1" && n.Add(1) == 1
		if late {
			close(asked)
			<-release
			defer close(done)
		}
		if strings.HasPrefix(r.URL.Path, "/v1/history") {
			w.Header().Set("Content-Type", "application/x-ndjson")
		}
		_, _ = w.Write([]byte(answer))
	})
	b.must(click(b, "#load"))
	<-asked
	s.take(fields{"policy": "p", "key": "second"})
	b.must(click(b, "#load"))
	b.shows("#history tbody", "second")
	close(release)
	<-done
	eval[int](b, "fetch('page/icon.svg').then((r) => r.text()).then((t) => new Promise((done) => setTimeout(() => done(t.length))))")
	if got := b.text("#history tbody"); !strings.Contains(got, "second") {
		t.Errorf("an earlier answer is shown: %s", got)
	}
	b.quiet(p.URL)
}
