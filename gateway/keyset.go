package gateway

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rsa"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-jose/go-jose/v4"
)

// Times and bounds of fetching the keys of an issuer.
const (
	fetchEvery   = 10 * time.Second // the shortest time between the beginnings of two fetches
	refreshEvery = 5 * time.Minute  // between fetches that nobody asks for
	fetchTime    = 5 * time.Second  // of a whole fetch
	fetchLogged  = 10 * time.Minute // the shortest time between two lines about fetches that fail
	fetchMost    = 1 << 20          // bytes of an answer
	maxPublished = 100              // keys of an issuer
	leastRSA     = 2048             // bits: shorter keys can be broken
	mostRSA      = 8192             // bits: longer ones take too long to check
)

// Errors of [keySet.find].
var (
	errNoKeys   = errors.New("the keys of its issuer are not known yet")
	errNoKey    = errors.New("its issuer has no such key for its algorithm (if the issuer has just changed its keys, try again in 10 seconds)")
	errManyKeys = errors.New("its issuer has several keys that fit, and it does not say which one (the header kid)")
)

// published is a public key of an issuer.
type published struct {
	id  string // its kid; may be ""
	alg string // the algorithm that it is for; "": all that it fits
	key any    // *rsa.PublicKey, *ecdsa.PublicKey or ed25519.PublicKey
}

// keySet has the keys that an issuer of tokens publishes. They are fetched at the start, regularly,
// and when a token names a key that is not known. The last known keys stay in force while the
// issuer cannot be asked: otherwise its outage would be one of this gateway.
type keySet struct {
	issuer, keysURL string // keysURL as in [TokenIssuer]
	client          *http.Client
	log             *slog.Logger
	life            context.Context //nolint:containedctx // ends fetches when the keys are not needed any more
	end             context.CancelFunc
	fetches         sync.WaitGroup

	mu     sync.Mutex
	known  []published   // guarded by mu: nil until a fetch succeeded
	flight chan struct{} // guarded by mu: closed when the fetch ends that is under way; nil: none is
	began  time.Time     // guarded by mu: when the latest fetch did
	timer  *time.Timer   // guarded by mu: of the next regular fetch; nil: none so far
	failed time.Time     // guarded by mu: when the log said that fetches fail; zero: the latest did not
}

// newKeySet returns a set that begins to fetch. The caller closes it.
func newKeySet(life context.Context, t *TokenIssuer, base http.RoundTripper, log *slog.Logger) *keySet {
	s := &keySet{issuer: t.Issuer, keysURL: t.KeysURL, log: log.With("issuer", t.Issuer)}
	s.client = &http.Client{Transport: base, CheckRedirect: func(*http.Request, []*http.Request) error {
		return errors.New("it is redirected, which is not followed")
	}}
	s.life, s.end = context.WithCancel(life)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.begin(time.Now()) //nolint:contextcheck // it has the context of the set
	return s
}

// close ends what is under way, and waits until it has ended.
func (s *keySet) close() {
	s.end()
	s.mu.Lock()
	if s.timer != nil {
		s.timer.Stop()
	}
	s.mu.Unlock()
	s.fetches.Wait()
}

// find returns the key for a token. It fetches the keys if this one is not known and the latest
// fetch began long enough ago: whoever forges tokens cannot make this gateway ask more often.
// Callers who come meanwhile wait for the same fetch.
func (s *keySet) find(ctx context.Context, alg jose.SignatureAlgorithm, id string) (any, error) {
	for range 2 {
		s.mu.Lock()
		key, err := choose(s.known, alg, id)
		now := time.Now()
		unknown := errors.Is(err, errNoKeys) || errors.Is(err, errNoKey)
		if unknown && s.flight == nil && now.Sub(s.began) >= fetchEvery {
			s.begin(now) //nolint:contextcheck // others wait for it as well: it does not end with this caller
		}
		flight := s.flight
		s.mu.Unlock()
		if !unknown || flight == nil {
			return key, err
		}
		select {
		case <-flight:
		case <-ctx.Done():
			return nil, errNoKeys
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return choose(s.known, alg, id)
}

// choose returns the key for a token. A token that does not name its key needs an issuer with one.
func choose(list []published, alg jose.SignatureAlgorithm, id string) (any, error) {
	if list == nil {
		return nil, errNoKeys
	}
	var found []any
	for i := range list {
		if p := &list[i]; (id == "" || id == p.id) && (p.alg == "" || p.alg == string(alg)) && suits(p.key, alg) {
			found = append(found, p.key)
		}
	}
	switch len(found) {
	case 0:
		return nil, errNoKey
	case 1:
		return found[0], nil
	}
	return nil, errManyKeys
}

// suits reports whether a key is one for an algorithm.
func suits(key any, alg jose.SignatureAlgorithm) bool {
	switch k := key.(type) {
	case *rsa.PublicKey:
		return strings.HasPrefix(string(alg), "RS") || strings.HasPrefix(string(alg), "PS")
	case *ecdsa.PublicKey:
		curve := map[jose.SignatureAlgorithm]elliptic.Curve{
			jose.ES256: elliptic.P256(), jose.ES384: elliptic.P384(), jose.ES512: elliptic.P521(),
		}[alg]
		return curve != nil && k.Curve == curve
	case ed25519.PublicKey:
		return alg == jose.EdDSA
	}
	return false
}

// begin begins a fetch. The caller holds s.mu, and none is under way.
func (s *keySet) begin(now time.Time) {
	if s.life.Err() != nil {
		return
	}
	s.began = now
	done := make(chan struct{})
	s.flight = done
	s.fetches.Go(func() {
		list, leftOut, err := s.fetch()
		s.mu.Lock()
		news := s.take(list, err, time.Now())
		s.flight = nil
		s.mu.Unlock()
		if s.life.Err() == nil { // nobody cares for a fetch that was ended
			s.tell(news, leftOut, err)
		}
		close(done)
	})
}

// news is what a fetch changed, for the log.
type news struct {
	keys    int
	known   bool // keys are in force
	changed bool // they are other keys than before
	again   bool // fetches had failed
	failing bool // the log should say that they fail
}

// take puts what was fetched in force, and sets the timer of the next fetch. The caller holds s.mu.
func (s *keySet) take(list []published, err error, now time.Time) (n news) {
	next := refreshEvery
	if err != nil {
		next = fetchEvery
		if n.failing = s.failed.IsZero() || now.Sub(s.failed) >= fetchLogged; n.failing {
			s.failed = now
		}
	} else {
		n.changed = s.known == nil || !slices.EqualFunc(s.known, list, samePublished)
		n.again = !s.failed.IsZero()
		s.known, s.failed = list, time.Time{}
	}
	n.keys, n.known = len(s.known), s.known != nil
	if s.timer != nil {
		s.timer.Stop()
	}
	if s.life.Err() == nil {
		s.timer = time.AfterFunc(next, s.refresh)
	}
	return n
}

// refresh fetches the keys regularly. If somebody has just asked for them, that fetch has set the
// timer again, or will.
func (s *keySet) refresh() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if now := time.Now(); s.flight == nil && now.Sub(s.began) >= fetchEvery {
		s.begin(now)
	}
}

func samePublished(a, b published) bool {
	key, ok := a.key.(interface {
		Equal(other crypto.PublicKey) bool
	})
	return ok && key.Equal(b.key) && a.id == b.id && a.alg == b.alg
}

// tell logs what a fetch changed.
func (s *keySet) tell(n news, leftOut int, err error) {
	switch {
	case n.failing && n.known:
		s.log.Warn("the keys of an issuer of tokens cannot be fetched: the last known ones stay in force", "error", err)
	case n.failing:
		s.log.Warn("the keys of an issuer of tokens cannot be fetched: its tokens are refused with 503 until they can",
			"error", err)
	case err == nil && n.keys == 0:
		s.log.Warn("an issuer of tokens publishes no key that can be used: its tokens are refused", "left_out", leftOut)
	case err == nil && (n.changed || n.again):
		s.log.Info("the keys of an issuer of tokens were fetched", "keys", n.keys, "left_out", leftOut, "changed", n.changed)
	}
}

// fetch asks the issuer for its keys. leftOut is how many were not understood, or cannot be used.
func (s *keySet) fetch() (list []published, leftOut int, err error) {
	ctx, cancel := context.WithTimeout(s.life, fetchTime)
	defer cancel()
	at := s.keysURL
	if at == "" {
		if at, err = s.discover(ctx); err != nil {
			return nil, 0, err
		}
	}
	var set struct {
		Keys []json.RawMessage `json:"keys"`
	}
	if err := s.get(ctx, at, &set); err != nil {
		return nil, 0, err
	}
	switch {
	case set.Keys == nil:
		return nil, 0, fmt.Errorf("%s: it has no list of keys", at)
	case len(set.Keys) > maxPublished:
		return nil, 0, fmt.Errorf("%s: it has %d keys, more than %d", at, len(set.Keys), maxPublished)
	}
	list = publishedIn(set.Keys)
	return list, len(set.Keys) - len(list), nil
}

// discover asks the issuer where its keys are.
func (s *keySet) discover(ctx context.Context) (string, error) {
	var about struct {
		Issuer string `json:"issuer"`
		Keys   string `json:"jwks_uri"`
	}
	at := strings.TrimSuffix(s.issuer, "/") + "/.well-known/openid-configuration"
	if err := s.get(ctx, at, &about); err != nil {
		return "", err
	}
	if about.Issuer != s.issuer {
		return "", fmt.Errorf("%s: it is about the issuer %.100q", at, about.Issuer)
	}
	u, err := url.Parse(about.Keys)
	if err != nil || u.Host == "" || u.User != nil ||
		u.Scheme != "https" && (u.Scheme != "http" || !thisMachine(u.Hostname())) {
		return "", fmt.Errorf("%s: its jwks_uri %.100q is not an https URL", at, about.Keys)
	}
	return about.Keys, nil
}

// get reads a JSON document of the issuer.
func (s *keySet) get(ctx context.Context, at string, to any) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, at, http.NoBody)
	if err != nil {
		return err //nolint:wrapcheck // it has the URL
	}
	r.Header.Set("Accept", "application/json")
	resp, err := s.client.Do(r)
	if err != nil {
		return err //nolint:wrapcheck // it has the URL
	}
	defer func() { _ = resp.Body.Close() }() // it was read, or is not wanted
	body, err := io.ReadAll(io.LimitReader(resp.Body, fetchMost+1))
	switch {
	case resp.StatusCode != http.StatusOK:
		return fmt.Errorf("%s: the status is %d", at, resp.StatusCode)
	case err != nil:
		return fmt.Errorf("%s: %w", at, err)
	case len(body) > fetchMost:
		return fmt.Errorf("%s: the answer has more than %d bytes", at, fetchMost)
	case json.Unmarshal(body, to) != nil:
		return fmt.Errorf("%s: the answer is not the JSON that it should be", at)
	}
	return nil
}

// publishedIn returns those of an issuer's keys that can check signatures. It is never nil.
func publishedIn(keys []json.RawMessage) []published {
	list := make([]published, 0, len(keys))
	for _, raw := range keys {
		var k jose.JSONWebKey
		if k.UnmarshalJSON(raw) != nil || !strong(k.Key) || k.Use != "" && k.Use != "sig" {
			continue
		}
		list = append(list, published{id: k.KeyID, alg: k.Algorithm, key: k.Key})
	}
	return list
}

// strong reports whether a key is a public one for signatures, and neither broken nor slow.
func strong(key any) bool {
	switch k := key.(type) {
	case *rsa.PublicKey:
		return k.N.BitLen() >= leastRSA && k.N.BitLen() <= mostRSA
	case *ecdsa.PublicKey, ed25519.PublicKey:
		return true
	}
	return false
}
