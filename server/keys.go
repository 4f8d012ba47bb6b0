package server

import (
	"net/http"
	"strconv"
	"time"

	"github.com/drawgate/drawgate/api"
	"github.com/drawgate/drawgate/virtualkey"
)

// keyBook returns the keys of the store for an administrator, or a problem. Keys of the gateway
// belong to no tenant.
func (s *Server) keyBook(who *access) (*virtualkey.Book, *api.Problem) {
	if p := who.unbound(); p != nil {
		return nil, p
	}
	if s.opts.Keys == nil {
		return nil, problem(api.CodeNotSupported,
			"no keys are kept in the store: set gateway.keys_in_store: true, and ask a process that runs the gateway")
	}
	return s.opts.Keys, nil
}

// keys serves /v1/keys.
func (s *Server) keys(w http.ResponseWriter, r *http.Request, who *access) {
	book, p := s.keyBook(who)
	if p == nil && r.Method == http.MethodPost {
		s.createKey(w, r, book, who)
		return
	}
	if p != nil {
		writeProblem(w, p)
		return
	}
	list, err := book.List(r.Context())
	out := api.KeysAnswer{Keys: []api.Key{}}
	for _, k := range list {
		out.Keys = append(out.Keys, k.Show())
	}
	s.answerKey(w, out, err)
}

func (s *Server) createKey(w http.ResponseWriter, r *http.Request, book *virtualkey.Book, who *access) {
	var q api.CreateKeyRequest
	if p := s.decode(w, r, &q); p != nil {
		writeProblem(w, p)
		return
	}
	k, secret, err := book.Create(r.Context(), who.name, q.Name, q.KeySettings)
	s.answerSecret(w, k, secret, err)
}

// key serves /v1/keys/{name}.
func (s *Server) key(w http.ResponseWriter, r *http.Request, who *access) {
	book, p := s.keyBook(who)
	var q api.ChangeKeyRequest
	if p == nil && r.Method == http.MethodPut {
		p = s.decode(w, r, &q)
	}
	if p != nil {
		writeProblem(w, p)
		return
	}
	var k *virtualkey.Key
	var err error
	name := r.PathValue("name")
	switch r.Method {
	case http.MethodPut:
		k, err = book.Change(r.Context(), who.name, name, q.Version, q.KeySettings)
	case http.MethodDelete:
		k, err = book.Delete(r.Context(), who.name, name)
	default:
		k, err = book.Key(r.Context(), name)
	}
	s.answerOne(w, k, err)
}

// disableKey serves POST /v1/keys/{name}/disable.
func (s *Server) disableKey(w http.ResponseWriter, r *http.Request, who *access) {
	s.setDisabled(w, r, who, true)
}

// enableKey serves POST /v1/keys/{name}/enable.
func (s *Server) enableKey(w http.ResponseWriter, r *http.Request, who *access) {
	s.setDisabled(w, r, who, false)
}

func (s *Server) setDisabled(w http.ResponseWriter, r *http.Request, who *access, disabled bool) {
	book, p := s.keyBook(who)
	if p != nil {
		writeProblem(w, p)
		return
	}
	k, err := book.SetDisabled(r.Context(), who.name, r.PathValue("name"), disabled)
	s.answerOne(w, k, err)
}

// rotateKey serves POST /v1/keys/{name}/rotate.
func (s *Server) rotateKey(w http.ResponseWriter, r *http.Request, who *access) {
	var q api.RotateKeyRequest
	book, p := s.keyBook(who)
	if p == nil {
		p = s.decode(w, r, &q)
	}
	if p == nil && q.Until == nil {
		p = problem(api.CodeInvalid, "until is missing: before which instant the secrets so far are valid, such as %q; a past one ends them now",
			time.Now().Add(24*time.Hour).UTC().Format(time.RFC3339))
	}
	if p != nil {
		writeProblem(w, p)
		return
	}
	k, secret, err := book.Rotate(r.Context(), who.name, r.PathValue("name"), *q.Until)
	s.answerSecret(w, k, secret, err)
}

// keyHistory serves GET /v1/history/keys.
func (s *Server) keyHistory(w http.ResponseWriter, r *http.Request, who *access) {
	book, p := s.keyBook(who)
	name, last := "", api.DefaultKeyEvents
	for field, values := range r.URL.Query() {
		v := values[len(values)-1]
		switch field {
		case "key":
			name = v
		case "last":
			var err error
			if last, err = strconv.Atoi(v); (err != nil || last < 1 || last > api.MaxKeyEvents) && p == nil {
				p = problem(api.CodeInvalid, "last is not a number from 1 to %d", api.MaxKeyEvents)
			}
		default:
			if p == nil {
				p = problem(api.CodeInvalid, "%.80q is not one of key and last", field)
			}
		}
	}
	if p != nil {
		writeProblem(w, p)
		return
	}
	list, err := book.Events(r.Context(), name, last)
	out := api.KeyEventsAnswer{Events: []api.KeyEvent{}}
	out.Events = append(out.Events, list...)
	s.answerKey(w, out, err)
}

// answerOne answers with a key.
func (s *Server) answerOne(w http.ResponseWriter, k *virtualkey.Key, err error) {
	var out api.Key
	if err == nil {
		out = k.Show()
	}
	s.answerKey(w, out, err)
}

// answerSecret answers with a key and its new secret.
func (s *Server) answerSecret(w http.ResponseWriter, k *virtualkey.Key, secret string, err error) {
	var out api.KeyWithSecret
	if err == nil {
		out = api.KeyWithSecret{Key: k.Show(), Secret: secret}
	}
	s.answerKey(w, out, err)
}

func (s *Server) answerKey(w http.ResponseWriter, out any, err error) {
	if err != nil {
		writeProblem(w, s.fail(err))
		return
	}
	writeJSON(w, http.StatusOK, out)
}
