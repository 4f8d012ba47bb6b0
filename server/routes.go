package server

import (
	"net/http"
	"slices"
	"strings"

	"github.com/drawgate/drawgate/api"
	"github.com/drawgate/drawgate/web"
)

// route is one path of the protocol.
type route struct {
	path    string   // as [http.ServeMux] has it
	methods []string // GET includes HEAD
	role    Role     // "": open to everybody
	admin   bool     // served by the admin handler only
	serve   handler
}

// routes lists the paths. api/openapi.json describes the same ones
// (TestOpenAPIDescribesEveryRoute).
func (s *Server) routes() []route {
	get, post := []string{http.MethodGet}, []string{http.MethodPost}
	all := []route{
		{"/v1/take", post, RoleTake, false, s.take},
		{"/v1/settle", post, RoleTake, false, s.settle},
		{"/v1/status", []string{http.MethodGet, http.MethodPost}, RoleRead, false, s.status},
		{"/v1/explain", post, RoleRead, false, s.explain},
		{"/v1/policies", get, RoleRead, false, s.policies},
		{"/v1/policies/{name}/disable", post, RoleAdmin, true, s.disable},
		{"/v1/policies/{name}/enable", post, RoleAdmin, true, s.enable},
		{"/v1/buckets", get, RoleAdmin, true, s.buckets},
		{"/v1/usage", get, RoleAdmin, true, s.usage},
		{"/v1/waiting", get, RoleAdmin, true, s.waiting},
		{"/v1/refusals", get, RoleAdmin, true, s.refusals},
		{"/v1/reset", post, RoleAdmin, true, s.reset},
		{"/v1/pause", post, RoleAdmin, true, s.pause},
		{"/v1/unpause", post, RoleAdmin, true, s.unpause},
		{"/v1/adjust", post, RoleAdmin, true, s.adjust},
		{"/v1/history", get, RoleAdmin, true, s.history},
		{"/v1/history/keys", get, RoleAdmin, true, s.keyHistory},
		{"/v1/keys", []string{http.MethodGet, http.MethodPost}, RoleAdmin, true, s.keys},
		{
			"/v1/keys/{name}",
			[]string{http.MethodGet, http.MethodPut, http.MethodDelete},
			RoleAdmin, true,
			s.key,
		},
		{"/v1/keys/{name}/rotate", post, RoleAdmin, true, s.rotateKey},
		{"/v1/keys/{name}/disable", post, RoleAdmin, true, s.disableKey},
		{"/v1/keys/{name}/enable", post, RoleAdmin, true, s.enableKey},
		{"/v1/spend", get, RoleAdmin, true, s.spend},
		{"/v1/incidents", get, RoleRead, true, s.incidents},
		{"/v1/incidents/{id}", get, RoleRead, true, s.incident},
		{"/v1/upstreams", get, RoleRead, true, s.upstreams},
		{"/v1/reload", post, RoleAdmin, true, s.reloadConfig},
		{"/healthz", get, "", false, s.healthz},
		{"/readyz", get, "", false, s.readyz},
		{"/healthcheck", get, "", false, s.healthcheck},
		{"/openapi.json", get, "", false, openAPI},
	}
	if s.opts.Metrics != nil {
		all = append(all, route{"/metrics", get, RoleRead, true, s.metrics})
	}
	return all
}

// listenerHandler is the handler of a listener. Most requests are for a few paths, which it finds
// itself in a fifth of the time of a ServeMux.
type listenerHandler struct {
	byPath map[string]http.Handler
	rest   http.Handler
}

func (d *listenerHandler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if h := d.byPath[r.URL.Path]; h != nil {
		h.ServeHTTP(w, r)
		return
	}
	d.rest.ServeHTTP(w, r)
}

// mux returns the handler of the public or of the admin listener.
func (s *Server) mux(admin bool) http.Handler {
	mux := http.NewServeMux()
	d := &listenerHandler{byPath: map[string]http.Handler{}, rest: refusePages(mux)}
	var paths []string
	for _, r := range s.routes() {
		h := http.HandlerFunc(elsewhere)
		if admin || !r.admin {
			h = answerTo(r.methods, s.only(r.role, r.serve))
			paths = append(paths, r.path)
		}
		mux.HandleFunc(r.path, h)
		if !strings.Contains(r.path, "{") {
			d.byPath[r.path] = refusePages(h)
		}
	}
	slices.Sort(paths)
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		writeProblem(w, problem(api.CodeNotFound, "there is no %s here: see %s, %s", r.URL.Path,
			strings.Join(paths, ", "), forwardPath))
	})
	if admin { // the page has no data, so that links to it may be anywhere; its parts are for itself
		d.byPath[web.Path] = answerTo([]string{http.MethodGet}, web.Handler().ServeHTTP)
		mux.HandleFunc(web.Parts, answerTo([]string{http.MethodGet}, web.Handler().ServeHTTP))
	}
	// On the path for proxies, the headers are those of a visitor of the site behind the proxy. It
	// requires a header that no browser sends.
	d.byPath[forwardPath] = http.HandlerFunc(s.forwardAuth)
	return d
}

// refusePages refuses requests from web pages of another origin: a page must not spend units, or
// read anything, through its visitor's browser. Other clients do not send the headers that it
// checks.
func refusePages(h http.Handler) http.HandlerFunc {
	guard := http.NewCrossOriginProtection()
	return func(w http.ResponseWriter, r *http.Request) {
		if r.Header["Origin"] == nil && r.Header["Sec-Fetch-Site"] == nil {
			h.ServeHTTP(w, r)
			return
		}
		as := *r
		as.Method = http.MethodPost // the guard admits all requests with methods that change nothing
		if guard.Check(&as) != nil {
			writeProblem(w, problem(api.CodeCrossOrigin, "requests from web pages of another origin are not served"))
			return
		}
		h.ServeHTTP(w, r)
	}
}

// elsewhere answers an administrator's request on the wrong listener.
func elsewhere(w http.ResponseWriter, r *http.Request) {
	writeProblem(w, problem(api.CodeNotFound, "%s is served on the admin listener only", r.URL.Path))
}

// answerTo admits the methods of a path.
func answerTo(methods []string, h http.HandlerFunc) http.HandlerFunc {
	if slices.Contains(methods, http.MethodGet) {
		methods = append(slices.Clone(methods), http.MethodHead)
	}
	return func(w http.ResponseWriter, r *http.Request) {
		if !slices.Contains(methods, r.Method) {
			w.Header().Set("Allow", strings.Join(methods, ", "))
			writeProblem(w, problem(api.CodeBadMethod, "%s allows %s, not %s", r.URL.Path,
				strings.Join(methods, " and "), r.Method))
			return
		}
		h(w, r)
	}
}

// openAPI serves GET /openapi.json.
func openAPI(w http.ResponseWriter, _ *http.Request, _ *access) {
	write(w, http.StatusOK, jsonType, []byte(api.OpenAPI()))
}

// metrics serves GET /metrics. It shows the keys and the usage of all tenants.
func (s *Server) metrics(w http.ResponseWriter, r *http.Request, who *access) {
	if p := who.unbound(); p != nil {
		writeProblem(w, p)
		return
	}
	s.opts.Metrics.ServeHTTP(w, r)
}
