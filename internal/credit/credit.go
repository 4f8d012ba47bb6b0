package credit

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/drawgate/drawgate/store"
)

// Names of the policies whose buckets are the accounts, and the notes of each credit.
const (
	accounts = store.OwnPolicies + "credit"
	notes    = store.OwnPolicies + "credits"
)

// Bounds of a credit, and of an account.
const (
	MaxID      = 64  // bytes
	MaxBy      = 64  // bytes
	MaxReason  = 200 // bytes
	MaxCredits = 1000
)

// keep is how long the index keeps a note: as good as for ever.
const keep = 100 * 365 * 24 * time.Hour

// Errors of [Give].
var (
	// ErrOther means that the id was used for another amount: nothing was credited now.
	ErrOther = errors.New("credit: this id was used for another amount")
	// ErrTooMuch means that an account would have more than a limit can count, or too many credits.
	ErrTooMuch = errors.New("credit: too much")
	// ErrCannotList means that the store cannot list credits.
	ErrCannotList = errors.New("credit: the store cannot list buckets")
	// ErrInvalid means that a credit is out of bounds.
	ErrInvalid = errors.New("credit: invalid")
)

// Account names a prepaid budget: a limit of one key of a policy.
type Account struct{ Policy, Limit, Tenant, Key string }

// Credit is what was added to a prepaid budget.
type Credit struct {
	ID     string // a credit that is sent again has the same one, and counts once
	N      int64
	At     time.Time
	By     string // who gave it
	Reason string
}

// bucket returns the name of the account's bucket. Its parts may be long, and it need not be read.
func (a *Account) bucket() string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%q %q %q %q", a.Policy, a.Limit, a.Tenant, a.Key))
	return hex.EncodeToString(sum[:16])
}

// limitOf is a limit of an account.
func limitOf(name, unit string, amount int64) store.Limit {
	return store.Limit{Name: name, Unit: unit, Kind: store.Calendar, Every: store.Total, Amount: amount}
}

// unit is that of the limits of single credits, of which an account has many.
const (
	unitSum = "credited"
	unit    = "credit"
)

// nameOf returns the name of the limit of a credit.
func nameOf(id string) string {
	sum := sha256.Sum256([]byte(id))
	return "id-" + hex.EncodeToString(sum[:16])
}

// bucket is an account's bucket with some of its limits.
func (a *Account) with(limits ...store.Limit) (store.BucketCost, error) {
	p := store.Policy{Name: accounts, Limits: limits, Fallback: store.FallbackClosed}
	plan, err := p.Compile()
	return store.BucketCost{Key: store.Key{Policy: accounts, Name: a.bucket()}, Plan: plan}, err
}

// states reads what an account has of each limit.
func (a *Account) states(ctx context.Context, s store.Store, limits ...store.Limit) ([]store.LimitUsage, error) {
	b, err := a.with(limits...)
	if err != nil {
		return nil, err
	}
	var out [1]store.State
	if err := s.Peek(ctx, []store.BucketCost{b}, store.MaxPriority, out[:]); err != nil {
		return nil, err //nolint:wrapcheck // a store says enough
	}
	switch {
	case out[0].Fail != nil:
		return nil, out[0].Fail
	case out[0].Fallback || len(out[0].States) != len(limits):
		return nil, fmt.Errorf("credit: %w", store.ErrStoreUnavailable)
	}
	return out[0].States, nil
}

// Sum returns what was credited to an account in all.
func (a *Account) Sum(ctx context.Context, s store.Store) (int64, error) {
	is, err := a.states(ctx, s, limitOf(unitSum, unitSum, store.MaxAmount))
	if err != nil {
		return 0, err
	}
	return is[0].Used, nil
}

// check reports what is wrong with a credit.
func (c *Credit) check() error {
	hidden := func(r rune) bool { return !unicode.IsPrint(r) }
	for _, f := range []struct {
		name, text string
		most       int
	}{{"id", c.ID, MaxID}, {"by", c.By, MaxBy}, {"reason", c.Reason, MaxReason}} {
		if len(f.text) > f.most || f.text == "" || strings.ContainsFunc(f.text, hidden) {
			return fmt.Errorf("%w: the %s of a credit has 1 to %d bytes, all of which can be seen", ErrInvalid, f.name, f.most)
		}
	}
	if c.N < 1 || c.N > store.MaxAmount {
		return fmt.Errorf("%w: a credit has 1 to %d units", ErrInvalid, int64(store.MaxAmount))
	}
	return nil
}

// Give adds a credit to an account, and returns what was credited to it in all. again says that the
// account had this credit already, so that nothing was added now.
//
// After another error than ErrOther, ErrTooMuch and ErrInvalid the credit may have been added: send
// it again with the same id.
func (a *Account) Give(ctx context.Context, s store.Store, c *Credit) (sum int64, again bool, err error) {
	if err := c.check(); err != nil {
		return 0, false, err
	}
	limits := []store.Limit{limitOf(unitSum, unitSum, store.MaxAmount), limitOf(nameOf(c.ID), unit, c.N)}
	if sum, again, err = a.has(ctx, s, c, limits); err != nil || again {
		return sum, again, err
	}
	if err := a.note(ctx, s, c); err != nil {
		return 0, false, err
	}
	b, err := a.with(limits...)
	if err != nil {
		return 0, false, err
	}
	b.N = store.Amounts{c.N, c.N}
	v, err := take(ctx, s, b)
	if err != nil {
		return 0, false, err
	}
	sum, has, err := a.has(ctx, s, c, limits)
	switch {
	case err != nil:
		return 0, false, err
	case !has: // it was refused
		return sum, false, fmt.Errorf("%w: %d were credited so far, and an account holds at most %d in all", ErrTooMuch, sum,
			int64(store.MaxAmount))
	}
	return sum, !v.Allowed, nil
}

// has reports whether an account has a credit, and what was credited in all.
func (a *Account) has(ctx context.Context, s store.Store, c *Credit, limits []store.Limit) (sum int64,
	has bool, err error,
) {
	is, err := a.states(ctx, s, limits...)
	if err != nil {
		return 0, false, err
	}
	switch is[1].Used {
	case 0:
		return is[0].Used, false, nil
	case c.N:
		return is[0].Used, true, nil
	}
	return is[0].Used, false, fmt.Errorf("%w: %d", ErrOther, is[1].Used)
}

func take(ctx context.Context, s store.Store, b store.BucketCost) (*store.Verdict, error) {
	var out [1]store.Verdict
	if err := s.Take(ctx, []store.Take{{Buckets: []store.BucketCost{b}}}, out[:]); err != nil {
		return nil, err //nolint:wrapcheck // a store says enough
	}
	switch {
	case out[0].Fail != nil:
		return nil, out[0].Fail
	case out[0].Fallback:
		return nil, fmt.Errorf("credit: %w", store.ErrStoreUnavailable)
	}
	return &out[0], nil
}

// note notes who gives a credit, before it is given.
func (a *Account) note(ctx context.Context, s store.Store, c *Credit) error {
	list, err := a.noted(ctx, s)
	if err != nil {
		return err
	}
	if len(list) >= MaxCredits {
		return fmt.Errorf("%w: an account has at most %d credits", ErrTooMuch, MaxCredits)
	}
	if slices.ContainsFunc(list, func(o Credit) bool { return o.ID == c.ID && o.N == c.N }) {
		return nil
	}
	parts := []string{
		url.PathEscape(c.ID), strconv.FormatInt(c.N, 10), strconv.FormatInt(c.At.UnixMilli(), 10), url.PathEscape(c.By),
		url.PathEscape(c.Reason),
	}
	p := store.Policy{Name: notes, Limits: []store.Limit{limitOf("noted", unit, 1)}, Fallback: store.FallbackClosed}
	plan, err := p.Compile()
	if err != nil {
		return err
	}
	b := store.BucketCost{
		Key:  store.Key{Tenant: a.bucket(), Policy: notes, Name: strings.Join(parts, "/")},
		Plan: plan, N: store.Amounts{1},
	}
	if _, err := take(ctx, s, b); err != nil {
		return err
	}
	if x, ok := s.(store.Indexer); ok {
		return x.Index(ctx, keep, []store.Key{b.Key}) //nolint:wrapcheck // a store says enough
	}
	return nil
}

// noted returns the credits that were noted, the oldest first. They may not have been given.
func (a *Account) noted(ctx context.Context, s store.Store) (list []Credit, err error) {
	l, ok := s.(store.Lister)
	if !ok {
		return nil, ErrCannotList
	}
	err = l.List(ctx, a.bucket(), notes, func(k store.Key) bool {
		var c Credit
		if c, err = parse(k.Name); err == nil {
			list = append(list, c)
		}
		return err == nil
	})
	slices.SortStableFunc(list, func(a, b Credit) int { return a.At.Compare(b.At) })
	return list, err
}

func parse(name string) (c Credit, err error) {
	parts := strings.Split(name, "/")
	if len(parts) != 5 {
		return c, fmt.Errorf("credit: %.80q is no credit", name)
	}
	n, errN := strconv.ParseInt(parts[1], 10, 64)
	at, errAt := strconv.ParseInt(parts[2], 10, 64)
	id, errID := url.PathUnescape(parts[0])
	by, errBy := url.PathUnescape(parts[3])
	reason, errReason := url.PathUnescape(parts[4])
	if err := errors.Join(errN, errAt, errID, errBy, errReason); err != nil {
		return c, fmt.Errorf("credit: %.80q is no credit: %w", name, err)
	}
	return Credit{ID: id, N: n, At: time.UnixMilli(at).UTC(), By: by, Reason: reason}, nil
}

// List returns the credits of an account, the oldest first, and their sum.
func (a *Account) List(ctx context.Context, s store.Store) (list []Credit, sum int64, err error) {
	noted, err := a.noted(ctx, s)
	if err != nil {
		return nil, 0, err
	}
	if sum, err = a.Sum(ctx, s); err != nil {
		return nil, 0, err
	}
	seen := map[string]bool{}
	for some := range slices.Chunk(noted, store.MaxLimits) {
		var limits []store.Limit
		some = slices.DeleteFunc(some, func(c Credit) bool { // whoever sent it again noted it again
			twice := seen[c.ID+" "+strconv.FormatInt(c.N, 10)]
			seen[c.ID+" "+strconv.FormatInt(c.N, 10)] = true
			return twice
		})
		names := map[string]int{}
		for _, c := range some {
			if _, ok := names[c.ID]; !ok {
				names[c.ID] = len(limits)
				limits = append(limits, limitOf(nameOf(c.ID), unit, c.N))
			}
		}
		if len(limits) == 0 {
			continue
		}
		is, err := a.states(ctx, s, limits...)
		if err != nil {
			return nil, 0, err
		}
		for _, c := range some {
			if is[names[c.ID]].Used == c.N {
				list = append(list, c)
			}
		}
	}
	return list, sum, nil
}
