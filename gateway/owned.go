package gateway

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/engine"
	"github.com/drawgate/drawgate/internal/owned"
	"github.com/drawgate/drawgate/llm"
)

// Stored says who may use what calls have stored at an upstream, such as responses and files: whose
// they are its provider does not know. The gateway writes it down in the store.
type Stored struct {
	By     string // StoredByKey or StoredByTeam
	Policy string // of the engine: counts the calls that name no model
}

// Who may use what a call has stored.
const (
	StoredByKey  = "key"  // the key that made the call
	StoredByTeam = "team" // all keys of its team; of a key without one, that key
)

// OwnedPolicy returns the policy that the engine needs if an upstream has a [Stored]: a bucket for
// each thing that is stored, which lasts for 366 days.
func OwnedPolicy() drawgate.Policy { return owned.Policy() }

// check returns what is wrong with who may use what is stored at an upstream, which may be nobody.
func (s *Stored) check(u *Upstream) error {
	switch {
	case s == nil:
	case !u.Profile.KeepsStored():
		return fmt.Errorf("gateway: upstream %q: stored: calls of the profile %q for what is stored are not known",
			u.Name, u.Profile.Name)
	case s.By != StoredByKey && s.By != StoredByTeam:
		return fmt.Errorf("gateway: upstream %q: stored: by is %q, not %q or %q", u.Name, s.By, StoredByKey, StoredByTeam)
	case s.Policy == "":
		return fmt.Errorf("gateway: upstream %q: stored: it needs the policy that counts its calls", u.Name)
	}
	return nil
}

// model is how calls are counted that name none.
func (s *Stored) model() *Model { return &Model{Name: string(llm.OpStored), Policy: s.Policy} }

// bucket returns the key of the bucket that says that something is a key's.
func (s *Stored) bucket(upstream string, k *Key, what llm.Stored) string {
	owner := "key " + k.Name
	if s.By == StoredByTeam {
		owner = k.team()
	}
	return owned.Key(upstream, owner, strconv.Itoa(int(what.Kind)), what.ID)
}

// own notes that something is the caller's.
func (x *exchange) own(c *call, what llm.Stored) {
	bucket := c.up.config.Stored.bucket(c.up.config.Name, x.key, what)
	if x.h.noted.has(bucket) {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(x.ctx), ownTimeout)
	defer cancel()
	res, err := x.h.engine.Take(ctx, &engine.Request{Asks: []engine.Ask{{
		Policy: owned.PolicyName, Tenant: owned.Tenant, Key: bucket, Own: true, Costs: owned.Cost(1),
	}}})
	if err == nil {
		err = res.Decision.Err()
	}
	if err == nil {
		x.h.noted.add(bucket)
	} else {
		x.h.warn("it was not written down whose something is that is stored: nobody can use it", "upstream",
			c.up.config.Name, "key", x.key.Name, "kind", what.Kind, "error", err)
	}
}

// ownTimeout is how long an answer is held up until it is written down whose it is.
const ownTimeout = 10 * time.Second

// noted are the buckets that were written lately, so that an answer that is asked for again and
// again is not written down each time.
type noted struct {
	mu sync.Mutex
	at map[string]time.Time // guarded by mu: by bucket, when it was written
}

const (
	notedFor  = 10 * time.Minute
	mostNoted = 10_000
)

func (n *noted) has(bucket string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	at, ok := n.at[bucket]
	return ok && time.Since(at) < notedFor
}

func (n *noted) add(bucket string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.at == nil || len(n.at) >= mostNoted {
		n.at = map[string]time.Time{}
	}
	n.at[bucket] = time.Now()
}

var errNoOwners = errors.New("gateway: the engine lacks gateway.OwnedPolicy")

// owns reports whether something is the caller's.
func (x *exchange) owns(up *Upstream, what llm.Stored) (bool, error) {
	if what.ID == "" {
		return false, nil
	}
	l := x.h.engine.Limiter(owned.PolicyName)
	if l == nil {
		return false, errNoOwners
	}
	ask := drawgate.Ask{
		Limiter: l, Tenant: owned.Tenant, Key: up.Stored.bucket(up.Name, x.key, what), Costs: owned.Cost(0),
	}
	st, err := ask.Status(x.ctx, 0)
	if err != nil {
		return false, err //nolint:wrapcheck // it is logged
	}
	return len(st.States) > 0 && st.States[0].Used > 0, nil
}

// mayUseStored returns why a call may not use what it refers to that is stored, or nil. Where
// nobody says whose things are, whoever knows the id of one can use it.
func (x *exchange) mayUseStored(c *call) *refusal {
	up := c.up.config
	if up.Stored == nil {
		return nil
	}
	if c.Unknown > 0 {
		const message = "calls may use only what is their own of what is stored, and this one has what may name " +
			"something else (%s): leave it out"
		return &refusal{kind: llm.BadRequest, message: fmt.Sprintf(message, c.Elsewhere)}
	}
	i := slices.IndexFunc(c.Stored, func(s llm.Stored) bool { return !looksUp(s.Kind) })
	if i >= 0 {
		const message = "the call names %s, and this gateway does not know whose that is: " +
			"use previous_response_id, or send the content itself"
		return &refusal{kind: llm.BadRequest, message: fmt.Sprintf(message, c.Stored[i].Kind)}
	}
	for _, what := range c.Stored {
		if why := x.notOwned(up, what); why != nil {
			return why
		}
	}
	return nil
}

// looksUp reports whether it is written down whose things of a kind are.
func looksUp(kind llm.StoredKind) bool {
	return kind == llm.StoredResponse || kind == llm.StoredFile || kind == llm.StoredItem
}

// notOwned returns why something is not the caller's, or nil.
func (x *exchange) notOwned(up *Upstream, what llm.Stored) *refusal {
	mine, err := x.owns(up, what)
	switch {
	case err != nil:
		x.h.warn("it cannot be read whose something is that is stored", "upstream", up.Name, "error", err)
		return &refusal{
			kind:    llm.Unavailable,
			message: "it cannot be read now whose " + what.Kind.String() + " is: try again later", after: time.Second,
		}
	case !mine && what.Kind == llm.StoredItem:
		const message = "the call names the item %.80q by its id, and this gateway does not know that it is this key's " +
			"own: send all of the item, reasoning with its encrypted_content (which the field include asks for), or " +
			"use previous_response_id"
		return &refusal{kind: llm.BadRequest, message: fmt.Sprintf(message, what.ID)}
	case !mine:
		const message = "there is no %s %.80q of this key at %s"
		_, name, _ := strings.Cut(what.Kind.String(), " ")
		return &refusal{kind: llm.NoSuchPath, message: fmt.Sprintf(message, name, what.ID, up.Name)}
	}
	return nil
}

// stored makes a call for what is stored one that counts, if that is the caller's.
func (x *exchange) stored(c *call, what llm.Stored) *refusal {
	up := c.up.config
	if up.Stored == nil {
		return x.notPassed(" (" + storedName(what) + "): the provider does not know which key's they are. " +
			"Have it configured in stored of the upstream")
	}
	if !x.mayUseAny(up.Name) {
		return x.notPassed(" (" + storedName(what) + "): this key may use no model of " + up.Name)
	}
	if what.ID != "" {
		if why := x.notOwned(up, what); why != nil {
			return why
		}
		c.body = nil // it means nothing
	}
	c.CountStored()
	c.entry, c.made = up.Stored.model(), what
	return nil
}

func storedName(what llm.Stored) string {
	if what.Kind == llm.StoredFile {
		return "files"
	}
	return "stored responses"
}

// noteStored returns what notes whose the answer of a call is, as its pieces pass; nil if nothing
// is stored by it.
func (x *exchange) noteStored(c *call, resp *http.Response) *noter {
	if c.up.config.Stored == nil || resp.StatusCode >= http.StatusMultipleChoices || !plain(resp) {
		return nil
	}
	n := &noter{x: x, c: c, what: llm.Stored{Kind: llm.StoredResponse}, noted: c.Unstored}
	switch c.Operation {
	case llm.OpResponses:
	case llm.OpStored:
		n.what, n.noted = c.made, c.made.ID != ""
	default:
		return nil
	}
	n.answer = c.up.config.Profile.NewStream(c.Call)
	return n
}

// noter reads the ids of an answer, and of the items in it that a later call may name.
type noter struct {
	x      *exchange
	c      *call
	what   llm.Stored
	noted  bool // it is known whose the answer is, or it is not stored
	answer *llm.Stream
}

// write reads a piece, before the caller gets it.
func (n *noter) write(piece []byte) {
	_, _ = n.answer.Write(piece) // it never fails
	if !n.noted {
		n.what.ID = n.answer.ID()
		n.noted = n.what.ID != ""
		if n.noted {
			n.x.own(n.c, n.what)
		}
	}
	if n.what.Kind != llm.StoredResponse {
		return // what a file says, its owner has written
	}
	for _, id := range n.answer.Items() {
		n.x.own(n.c, llm.Stored{Kind: llm.StoredItem, ID: id})
	}
}
