package server

import (
	"net/http"
	"reflect"
	"slices"

	"github.com/drawgate/drawgate/api"
	"github.com/drawgate/drawgate/engine"
)

// reloadConfig serves POST /v1/reload.
func (s *Server) reloadConfig(w http.ResponseWriter, r *http.Request, who *access) {
	if p := who.unbound(); p != nil {
		writeProblem(w, p)
		return
	}
	if s.opts.Reload == nil {
		writeProblem(w, problem(api.CodeNotSupported,
			"this server was started without a configuration that it could reload"))
		return
	}
	s.reload.Lock()
	defer s.reload.Unlock()
	before := s.engine.Config()
	restart, err := s.opts.Reload(r.Context())
	if err != nil {
		writeProblem(w, problem(api.CodeNotReloaded, "the old configuration stays in force: %v", err))
		return
	}
	after := s.engine.Config()
	out := changes(before.Policies, after.Policies)
	for _, c := range engine.Compare(before, after) {
		if len(out.Changes) < api.MaxChanges {
			out.Changes = append(out.Changes, c.String())
		}
	}
	out.Rules, out.Restart = !reflect.DeepEqual(before.Rules, after.Rules), restart
	writeJSON(w, http.StatusOK, out)
}

// changes compares two configurations by the names of their policies.
func changes(before, after []engine.Policy) (out api.ReloadAnswer) {
	old := make(map[string]*engine.Policy, len(before))
	for i := range before {
		old[before[i].Name] = &before[i]
	}
	for i := range after {
		was := old[after[i].Name]
		switch {
		case was == nil:
			out.Added = append(out.Added, after[i].Name)
		case !reflect.DeepEqual(was, &after[i]):
			out.Changed = append(out.Changed, after[i].Name)
		}
		delete(old, after[i].Name)
	}
	for name := range old {
		out.Removed = append(out.Removed, name)
	}
	slices.Sort(out.Added)
	slices.Sort(out.Changed)
	slices.Sort(out.Removed)
	return out
}
