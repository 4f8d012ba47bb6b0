package pgstore_test

import (
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/drawgate/drawgate/internal/pgtest"
	"github.com/drawgate/drawgate/store"
)

// noise returns a text of n characters that cannot be compressed to much less.
func noise(n int) string {
	var b strings.Builder
	for range n {
		b.WriteRune(rune(0x4e00 + rand.IntN(0x5000)))
	}
	return b.String()
}

// TestLongHistory takes with names and labels that are longer than an index takes, and finds them
// in the history.
func TestLongHistory(t *testing.T) {
	t.Parallel()
	s, plan := open(t, pgtest.Shared(t).Schema(t), nil), hourly(t, many)
	const long = 300_000
	for what, change := range map[string]func(*store.Take){
		"a name":         func(t *store.Take) { t.Buckets[0].Key.Name = noise(long) },
		"a tenant":       func(t *store.Take) { t.Buckets[0].Key.Tenant = noise(long) },
		"a label":        func(t *store.Take) { t.Labels = []store.Label{{Name: "long", Value: noise(long)}} },
		"a label's name": func(t *store.Take) { t.Labels = []store.Label{{Name: noise(long), Value: "v"}} },
		"a label of bytes": func(t *store.Take) {
			t.Labels = []store.Label{{Name: "long", Value: "\xff\x00" +
				noise(long)}}
		},
		"one of two labels": func(t *store.Take) {
			t.Labels = []store.Label{{Name: "a", Value: "b"}, {Name: "c", Value: noise(long)}}
		},
	} {
		take := takeOf(plan, "k"+what)
		change(&take)
		mustTake(t, s, take)
		key := take.Buckets[0].Key
		other := noise(long)
		for n, want := range []store.EventQuery{
			{Policy: key.Policy, Tenant: &key.Tenant, Key: &key.Name, Labels: take.Labels},
			{Key: &other},
			{Labels: append(slices.Clip(take.Labels), store.Label{Name: "long", Value: other})},
		} {
			var found []store.Event
			err := s.Read(t.Context(), want, func(e store.Event) bool {
				found = append(found, e)
				return true
			})
			if err != nil || len(found) != 1-min(n, 1) {
				t.Errorf("%s: question %d: %d events, %v", what, n, len(found), err)
			} else if n == 0 && (found[0].Key != key || len(found[0].Labels) != len(take.Labels)) {
				t.Errorf("%s: the event is of another key, or has other labels", what)
			}
		}
	}
}

// TestDatabaseOfAnotherEncoding: a text that it does not have fails the take, and none of those of
// the same transaction.
func TestDatabaseOfAnotherEncoding(t *testing.T) {
	t.Parallel()
	server, hold := pgtest.Shared(t), make(chan bool)
	server.Do("CREATE DATABASE euc ENCODING 'EUC_JP' LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0")
	t.Cleanup(func() { server.Do("DROP DATABASE euc WITH (FORCE)") })
	s, plan := oneLaneAt(t, strings.Replace(server.URL(), "/postgres?", "/euc?", 1), hold), hourly(t, many)
	take := func(name string) func() error {
		return func() error {
			_, err := takeOne(t, s, takeOf(plan, name))
			return err
		}
	}
	errs := together(t, s, hold, []func() error{take("a"), take("日"), take("b")})
	if err := errors.Join(errs[0], errs[2]); err != nil {
		t.Error(err)
	}
	fails(t, errs[1], store.FaultBucket)
	for name, want := range map[string]int64{"a": 1, "b": 1, "日": 0} {
		if got := used(t, s, plan, name); got != want {
			t.Errorf("%s: %d units are used, want %d", name, got, want)
		}
	}
}
