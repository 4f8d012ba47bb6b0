package virtualkey_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/drawgate/drawgate/api"
)

// TestTwoAdministrators: of those that change what they have seen, one wins; the others are told.
// Changes of different keys all succeed, each with a number of its own.
func TestTwoAdministrators(t *testing.T) {
	t.Parallel()
	s := newShared(t)
	var all []*process
	for range 4 {
		all = append(all, open(t, s))
	}
	race := func(f func(i int) error) (won int) {
		t.Helper()
		var group sync.WaitGroup
		var wins atomic.Int64
		for i := range all {
			group.Go(func() {
				err := f(i)
				p, ok := errors.AsType[*api.Problem](err)
				switch {
				case err == nil:
					wins.Add(1)
				case !ok || p.Code != api.CodeKeyExists && p.Code != api.CodeKeyConflict:
					t.Error(err)
				}
			})
		}
		group.Wait()
		return int(wins.Load())
	}
	for round := range 10 {
		name := fmt.Sprint("key ", round)
		if n := race(func(i int) error {
			_, _, err := all[i].Create(t.Context(), fmt.Sprint("admin ", i), name, api.KeySettings{})
			return err
		}); n != 1 {
			t.Errorf("%d administrators made one key", n)
		}
		k, err := all[0].Key(t.Context(), name)
		if err != nil {
			t.Fatal(err)
		}
		if n := race(func(i int) error {
			_, err := all[i].Change(t.Context(), fmt.Sprint("admin ", i), name, k.Version,
				api.KeySettings{Team: fmt.Sprint("team ", i)})
			return err
		}); n != 1 {
			t.Errorf("%d administrators changed the same version", n)
		}
		if n := race(func(i int) error {
			_, _, err := all[i].Create(t.Context(), "", fmt.Sprint(name, " of ", i), api.KeySettings{})
			return err
		}); n != len(all) {
			t.Errorf("%d of %d administrators made keys of their own", n, len(all))
		}
	}
	events, err := all[0].Events(t.Context(), "", 1000)
	if err != nil || len(events) != 10*(1+1+len(all)) {
		t.Errorf("%d changes in the history, %v", len(events), err)
	}
	for i, e := range events {
		if e.Version != int64(len(events)-i) {
			t.Errorf("change %d has the number %d", len(events)-i, e.Version)
		}
	}
	k, err := all[1].Key(t.Context(), "key 3")
	if err != nil || k.Team != "team "+strings.TrimPrefix(k.By, "admin ") {
		t.Errorf("the last change was made by %q: %+v, %v", k.By, k, err)
	}
}

// TestALostAnswer: a change that was made although its answer was lost is one change, and its
// secret is not lost.
func TestALostAnswer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newShared(t)
		p := open(t, s)
		s.lostReply.Store(true)
		secret := p.create(t, "alice")
		if s.lostReply.Load() || !p.valid(secret) {
			t.Error("the key is not valid")
		}
		if events, err := p.Events(t.Context(), "", 10); err != nil || len(events) != 1 {
			t.Errorf("the history: %+v, %v", events, err)
		}
		s.lostReply.Store(true)
		if _, err := p.Delete(t.Context(), "ops", "alice"); err != nil || p.has("alice") != nil {
			t.Errorf("delete: %v", err)
		}
	})
}

// TestSecretsAreReplaced: those so far are valid before the given instant, or an earlier end that
// they have.
func TestSecretsAreReplaced(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newShared(t)
		p := open(t, s)
		rotate := func(until time.Duration) (secret string) {
			t.Helper()
			_, secret, err := p.Rotate(t.Context(), "ops", "alice", time.Now().Add(until))
			if err != nil {
				t.Fatal(err)
			}
			return secret
		}
		want := func(when string, want ...string) {
			t.Helper()
			for i, secret := range want {
				if valid, is := !strings.HasPrefix(secret, "-"), p.valid(strings.TrimPrefix(secret, "-")); is != valid {
					t.Errorf("%s: secret %d is valid: %v, want %v", when, i, is, valid)
				}
			}
		}
		first := p.create(t, "alice")
		second := rotate(time.Hour)
		want("after a rotation", first, second)
		until := time.Now().Add(time.Hour).UTC().Format(time.RFC3339)
		if events, err := p.Events(t.Context(), "alice", 1); err != nil || len(events) != 1 ||
			!slices.Equal(events[0].Fields, []api.KeyField{{Field: "until", After: until}}) {
			t.Errorf("the history: %+v, %v; want that the first secret is valid until %s", events, err, until)
		}
		time.Sleep(30 * time.Minute)
		third := rotate(time.Hour)
		want("after another one", first, second, third)
		time.Sleep(30 * time.Minute)
		want("at the first end", "-"+first, second, third)
		time.Sleep(30 * time.Minute)
		want("at the second end", "-"+first, "-"+second, third)
		fourth := rotate(-time.Hour)
		want("at once", "-"+first, "-"+second, "-"+third, fourth)
		if n := len(p.has("alice").Secrets); n != 2 {
			t.Errorf("%d secrets are kept, want the one in force and the one before it", n)
		}
		for range 9 {
			rotate(time.Hour)
		}
		_, _, err := p.Rotate(t.Context(), "ops", "alice", time.Now().Add(time.Hour))
		wantCode(t, "an eleventh secret", err, api.CodeInvalid)
		want("the oldest of ten", fourth)
		last := rotate(0)
		want("all are ended", "-"+fourth, last)
		_, _, err = p.Rotate(t.Context(), "ops", "nobody", time.Now())
		wantCode(t, "an unknown key", err, api.CodeUnknownKey)
		_, _, err = p.Rotate(t.Context(), "ops", "alice", time.Time{})
		wantCode(t, "no instant", err, api.CodeInvalid)
	})
}

// TestKeysThatAreRefused: nothing is written of what no key can be.
func TestKeysThatAreRefused(t *testing.T) {
	t.Parallel()
	s := newShared(t)
	p := open(t, s, func(name string, _ *api.KeySettings) error {
		if name == "in the file" {
			return errors.New("the file has it")
		}
		return nil
	})
	for _, name := range []string{
		"", "in the file", "corp#alice", "#", "a/b", `a\b`, `a"b`, "a\nb", "a\x00b", " a", "a ", "a\u200bb", "a\xffb",
		".", "..",
		strings.Repeat("n", 129),
	} {
		_, _, err := p.Create(t.Context(), "ops", name, api.KeySettings{})
		wantCode(t, fmt.Sprintf("%.20q", name), err, api.CodeInvalid)
	}
	year := time.Date(1, 1, 1, 0, 0, 0, 0, time.UTC)
	k, _, err := p.Create(t.Context(), "ops", "good: ä, 日本 & <b>", api.KeySettings{})
	if err != nil {
		t.Fatal(err)
	}
	for what, set := range map[string]api.KeySettings{
		"a priority below 0":  {Priority: -1},
		"a priority above 9":  {Priority: 10},
		"a long team":         {Team: strings.Repeat("t", 257)},
		"a hidden user":       {User: "a\tb"},
		"a hidden class":      {Class: "\u202e"},
		"an empty model":      {Models: []string{""}},
		"a * within":          {Models: []string{"openai/*x"}},
		"a long path":         {Paths: []string{strings.Repeat("p", 257)}},
		"many models":         {Models: slices.Repeat([]string{"openai/*"}, 101)},
		"no address":          {Addresses: []string{"example.com"}},
		"an address and zone": {Addresses: []string{"fe80::1%eth0"}},
		"the year 1":          {Expires: &year},
	} {
		_, _, err := p.Create(t.Context(), "ops", "bob", set)
		wantCode(t, what, err, api.CodeInvalid)
		_, err = p.Change(t.Context(), "ops", k.Name, k.Version, set)
		wantCode(t, what+", changed", err, api.CodeInvalid)
	}
	for what, err := range map[string]error{
		"change":  func() error { _, err := p.Change(t.Context(), "", "nobody", 1, api.KeySettings{}); return err }(),
		"delete":  func() error { _, err := p.Delete(t.Context(), "", "nobody"); return err }(),
		"disable": func() error { _, err := p.SetDisabled(t.Context(), "", "nobody", true); return err }(),
		"look":    func() error { _, err := p.Key(t.Context(), "nobody"); return err }(),
	} {
		wantCode(t, what+" what is not there", err, api.CodeUnknownKey)
	}
	_, err = p.Change(t.Context(), "ops", k.Name, k.Version+1, api.KeySettings{})
	wantCode(t, "another version", err, api.CodeKeyConflict)
	_, _, err = p.Create(t.Context(), "ops", k.Name, api.KeySettings{})
	wantCode(t, "the same name", err, api.CodeKeyExists)
	if events, err := p.Events(t.Context(), "", 100); err != nil || len(events) != 1 {
		t.Errorf("the history: %+v, %v", events, err)
	}
}

// TestTheLargestChangesFit: a page of the history with the longest texts, and a key with the
// longest lists, are no larger than a store takes, or the change is refused as too large.
func TestTheLargestChangesFit(t *testing.T) {
	t.Parallel()
	s := newShared(t)
	p := open(t, s)
	long := func(c string) string { return strings.Repeat(c, 256/len(c)) }
	list := slices.Repeat([]string{long("&")}, 100)
	a := api.KeySettings{
		Team: long("é"), User: long("<"), Class: long("日"), Priority: 9, Models: list, Others: list[:50],
		Paths:     list[:50],
		Addresses: slices.Repeat([]string{"2001:db8:1111:2222:3333:4444:5555:6666/127"}, 100),
	}
	b := api.KeySettings{Team: long("!"), User: long("ü"), Class: long("."), Models: list[:1], Disabled: true}
	name, by := strings.Repeat("é", 64), strings.Repeat("b", 500)
	k, _, err := p.Create(t.Context(), by, name, a)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 140 {
		if k, err = p.Change(t.Context(), by, name, k.Version, []api.KeySettings{b, a}[i%2]); err != nil {
			t.Fatalf("change %d: %v", i, err)
		}
	}
	a.Others, a.Paths = list, list
	_, err = p.Change(t.Context(), by, name, k.Version, a)
	wantCode(t, "a key that is too large", err, api.CodeInvalid)
	var most int
	for _, text := range s.all(t) {
		most = max(most, len(text))
	}
	t.Logf("the largest document has %d bytes", most)
}

// TestTheHistoryIsBounded: the oldest page is removed when there are too many, and what is asked
// for is found across pages.
func TestTheHistoryIsBounded(t *testing.T) {
	t.Parallel()
	s := newShared(t)
	p := open(t, s)
	p.create(t, "alice")
	if all := s.all(t); all["page:0"] == nil {
		t.Fatal("there is no page 0")
	}
	s.put(t, "head", `{"n":10240,"stamp":"x"}`) // the last change of page 159
	p = open(t, s)
	p.create(t, "bob")
	if all := s.all(t); all["page:0"] != nil || all["page:160"] == nil {
		t.Errorf("the oldest page is kept: %v", all["page:0"] != nil)
	}
	for range 100 {
		if _, err := p.SetDisabled(t.Context(), "ops", "bob", true); err != nil {
			t.Fatal(err)
		}
	}
	for name, want := range map[string]int{"": 101, "bob": 101, "alice": 0, "nobody": 0} {
		if events, err := p.Events(t.Context(), name, 1000); err != nil || len(events) != want {
			t.Errorf("%d changes of %q, %v; want %d", len(events), name, err, want)
		}
	}
	events, err := p.Events(t.Context(), "bob", 70)
	if err != nil || len(events) != 70 || events[0].Version != 10341 || events[69].Version != 10272 {
		t.Errorf("%d changes, %v", len(events), err)
	}
}

// TestKeysAreReadAsTheyWereWritten by this version. A change of what is stored must not be one for
// older programs.
func TestKeysAreReadAsTheyWereWritten(t *testing.T) {
	t.Parallel()
	s := newShared(t)
	s.put(t, "key:alice", `{"team":"blue","models":["openai/*"],"expires":"2030-01-02T02:04:05Z","limits":{"per-key":{"budget":5000000}},"name":"alice","version":7,`+
		`"secrets":[{"sha256":"0a57cf2a5b5ee8ee3d0fdc8a5cf5c9dd7b1e4f4dbd5ac3aa7a3d0c5ec7cfa0d1","made":"2026-01-01T00:00:00Z",`+
		`"until":"2027-01-01T00:00:00Z"}],"created":"2026-01-01T00:00:00Z","changed":"2026-01-02T00:00:00Z","by":"ops"}`)
	s.put(t, "page:0", `[{"version":7,"at":"2026-01-02T00:00:00Z","by":"ops","op":"change","key":"alice","fields":[{"field":"team","after":"blue"}],"stamp":"s"}]`)
	s.put(t, "head", `{"n":7,"stamp":"s"}`)
	p := open(t, s)
	k := p.has("alice")
	if k == nil || k.Team != "blue" || k.Version != 7 || k.Secrets[0].Sum[0] != 0x0a ||
		k.Secrets[0].Until.Year() != 2027 ||
		k.Expires.Year() != 2030 || k.By != "ops" || k.Limits["per-key"]["budget"] != 5_000_000 {
		t.Fatalf("%+v", k)
	}
	if events, err := p.Events(t.Context(), "alice", 10); err != nil || len(events) != 1 ||
		events[0].Op != api.KeyChanged {
		t.Errorf("the history: %+v, %v", events, err)
	}
}

// TestAmountsAreChecked: what no limit could have is refused.
func TestAmountsAreChecked(t *testing.T) {
	t.Parallel()
	p := open(t, newShared(t))
	many := map[string]int64{}
	for i := range 101 {
		many[fmt.Sprint(i)] = 1
	}
	for want, limits := range map[string]map[string]map[string]int64{
		"amount 0 of p/a is not":        {"p": {"a": 0}},
		"amount -1 of p/a is not":       {"p": {"a": -1}},
		"is not between 1 and 10000000": {"p": {"a": 1e12 + 1}},
		`policy "p" is empty`:           {"p": {}},
		"cannot be seen":                {"p": {"a\n": 1}},
		"more than 100":                 {"p": many},
	} {
		_, _, err := p.Create(t.Context(), "ops", "alice", api.KeySettings{Limits: limits})
		wantCode(t, want, err, api.CodeInvalid)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

// TestEveryChangeIsInTheHistory: lists that differ are told apart, however their entries are
// written, and so are ends within one second.
func TestEveryChangeIsInTheHistory(t *testing.T) {
	t.Parallel()
	p := open(t, newShared(t))
	k, _, err := p.Create(t.Context(), "ops", "alice", api.KeySettings{Models: []string{"a/x, b/y"}})
	if err != nil {
		t.Fatal(err)
	}
	at := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	later := at.Add(time.Millisecond)
	long := strings.Repeat("ä", 100)
	for i, s := range []api.KeySettings{
		{Models: []string{"a/x", "b/y"}},
		{Models: []string{`"a/x`, `b/y"`}},
		{Expires: &at},
		{Expires: &later},
		{Team: long + "x"},
		{Team: long + "ö"},
		{Team: long + "öy"},
		{Team: long},
		{Limits: map[string]map[string]int64{"p": {"a": 1}, "q": {"a": 2}}},
		{Limits: map[string]map[string]int64{"p": {"a": 1}, "q": {"a": 3}}},
		{Limits: map[string]map[string]int64{"p": {"a": 1, "b": 3}}},
	} {
		if k, err = p.Change(t.Context(), "ops", "alice", k.Version, s); err != nil {
			t.Fatal(err)
		}
		events, err := p.Events(t.Context(), "alice", 1)
		if err != nil || len(events) != 1 || len(events[0].Fields) == 0 {
			t.Errorf("change %d is in the history as %+v, %v", i, events, err)
			continue
		}
		for _, f := range events[0].Fields {
			if f.Before == f.After {
				t.Errorf("change %d: %s was %s and is %s", i, f.Field, f.Before, f.After)
			}
		}
	}
}
