package server_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/drawgate/drawgate/server"
)

// The page for administrators is served without a token, because it has no data; whoever follows a
// link to it gets it. Its parts are for itself, and it is on the administrators' address only.
//
// req: A13
func TestPage(t *testing.T) {
	t.Parallel()
	s := setup{options: &server.Options{Tokens: tokens()}}.make(t)
	elsewhere := []string{"Sec-Fetch-Site: cross-site", "Sec-Fetch-Mode: navigate", "Sec-Fetch-Dest: document"}
	for _, c := range []struct {
		handler      http.Handler
		method, path string
		headers      []string
		want         int
		body         string
	}{
		{s.AdminHandler(), "GET", "/", nil, 200, "<!DOCTYPE html>"},
		{s.AdminHandler(), "GET", "/", elsewhere, 200, "<!DOCTYPE html>"},
		{s.AdminHandler(), "HEAD", "/", nil, 200, ""},
		{s.AdminHandler(), "POST", "/", nil, 405, "bad_method"},
		{s.AdminHandler(), "GET", "/page/app.js", []string{"Sec-Fetch-Site: same-origin"}, 200, "import"},
		{s.AdminHandler(), "GET", "/page/app.js", []string{"Sec-Fetch-Site: cross-site"}, 403, "cross_origin"},
		{s.AdminHandler(), "GET", "/page/nothing.js", nil, 404, ""},
		{s.AdminHandler(), "GET", "/page/", nil, 404, ""},
		{s.AdminHandler(), "GET", "/page/../index.html", nil, 307, ""},
		{s.AdminHandler(), "GET", "/nothing", nil, 404, "not_found"},
		{s, "GET", "/", nil, 404, "not_found"},
		{s, "GET", "/page/app.js", nil, 404, "not_found"},
	} {
		if w := ask(c.handler, c.method, c.path, "", c.headers...); w.Code != c.want ||
			!strings.Contains(w.Body.String(), c.body) {
			t.Errorf("%s %s %v: %d %.100s, want %d, %q", c.method, c.path, c.headers, w.Code, w.Body, c.want, c.body)
		}
	}
	w := ask(s.AdminHandler(), "GET", "/", "")
	tag := w.Header().Get("Etag")
	if policy := w.Header().Get("Content-Security-Policy"); !strings.Contains(policy, "default-src 'none'") ||
		strings.Contains(policy, "unsafe") || tag == "" {
		t.Errorf("headers: %v", w.Header())
	}
	if w := ask(s.AdminHandler(), "GET", "/", "", "If-None-Match: "+tag); w.Code != 304 {
		t.Errorf("the page has not changed: %d", w.Code)
	}
}
