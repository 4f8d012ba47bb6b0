// Package web has the server's own page for administrators, and the gateway's for its keys: HTML,
// CSS and JavaScript that need nothing from elsewhere. They show what the server or the gateway
// answers, and change nothing.
package web

import (
	"crypto/sha256"
	"embed"
	"fmt"
	"net/http"
	"path"
	"strings"
)

//go:embed index.html me.html page
var files embed.FS

// Where [Handler] serves the page and its parts, and [ForKeys] the parts of its own.
const (
	Path      = "/"
	Parts     = "/page/"
	KeysParts = "/v1/page/"
)

// policy lets the page load its own parts, ask its own server, and nothing else: no code in the
// text of the page runs, and nobody shows it inside another page.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"

// mediaTypes are those of the files, by the ends of their names.
var mediaTypes = map[string]string{
	".html": "text/html; charset=utf-8", ".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8",
	".svg": "image/svg+xml",
}

// Handler serves the page. It is the same for everybody, and has nothing of what the server knows:
// its code asks for that, with the visitor's access token.
func Handler() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { serve(w, r, "index.html", r.URL.Path) })
}

// ForKeys serves the page on which a key of the gateway sees what it has used, likewise.
func ForKeys() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		serve(w, r, "me.html", strings.TrimPrefix(r.URL.Path, "/v1"))
	})
}

// serve serves a file of a page: the page itself, or the part at a path.
func serve(w http.ResponseWriter, r *http.Request, page, at string) {
	name := page
	if at != Path {
		name = strings.TrimPrefix(Parts, "/") + path.Base(at)
	}
	text, err := files.ReadFile(name)
	if err != nil {
		http.NotFound(w, r)
		return
	}
	h := w.Header()
	h.Set("Content-Type", mediaTypes[path.Ext(name)])
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Content-Security-Policy", policy)
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cache-Control", "no-cache") // after an upgrade the parts must fit each other
	tag := fmt.Sprintf(`"%.8x"`, sha256.Sum256(text))
	h.Set("ETag", tag)
	if r.Header.Get("If-None-Match") == tag {
		w.WriteHeader(http.StatusNotModified)
		return
	}
	_, _ = w.Write(text) //nolint:gosec // an embedded file. An error means that the client has closed the connection
}
