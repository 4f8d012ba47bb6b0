package storetest

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/drawgate/drawgate/store"
)

var documentCases = []testCase{
	{"documents", "a step writes and removes all of its documents, or none if one is not as it was", testDocuments, true},
	{"documents raced", "of steps that several callers make from the same document, one is made", testDocumentsRaced, true},
	{"documents shared", "another process reads what one has written", testDocumentsShared, true},
	{"documents refused", "a step that no store could make is an error, and writes nothing", testDocumentsRefused, true},
}

// wrote writes documents from a list of names and values; "" removes.
func (e *env) wrote(s store.Documents, collection string, was store.Document, nameValue ...string) bool {
	e.Helper()
	var docs []store.Document
	for i := 0; i < len(nameValue); i += 2 {
		d := store.Document{Name: nameValue[i]}
		if nameValue[i+1] != "" {
			d.Value = []byte(nameValue[i+1])
		}
		docs = append(docs, d)
	}
	done, err := s.WriteDocuments(e.ctx(), collection, was, docs)
	if err != nil {
		e.Fatal(err)
	}
	return done
}

// wantDocuments checks which documents with these names there are; nil: all.
func (e *env) wantDocuments(s store.Documents, collection string, names []string, want map[string]string) {
	e.Helper()
	list, err := s.ReadDocuments(e.ctx(), collection, names)
	if err != nil {
		e.Fatal(err)
	}
	got := map[string]string{}
	for _, d := range list {
		if _, twice := got[d.Name]; twice || len(d.Value) == 0 {
			e.Errorf("document %.100q is there twice, or empty", d.Name)
		}
		got[d.Name] = string(d.Value)
	}
	for name, value := range want {
		if got[name] != value {
			e.Errorf("document %.100q is %.100q, want %.100q", name, got[name], value)
		}
	}
	if len(got) != len(want) {
		e.Errorf("%d documents, want %d", len(got), len(want))
	}
}

func testDocuments(e *env) {
	s, implemented := optional[store.Documents](e)
	if !implemented || !s.KeepsDocuments() {
		return
	}
	const c = "things"
	none := store.Document{Name: "head"}
	as := func(name, value string) store.Document { return store.Document{Name: name, Value: []byte(value)} }
	e.wantDocuments(s, c, nil, nil)
	e.wantDocuments(s, c, []string{"a"}, nil)
	if e.wrote(s, c, as("head", "1"), "head", "2", "a", "x") {
		e.Error("wrote though a document was missing")
	}
	if !e.wrote(s, c, none, "head", "1", "a", "x", "b", "y") {
		e.Error("the first step was not made")
	}
	e.wantDocuments(s, c, nil, map[string]string{"head": "1", "a": "x", "b": "y"})
	for _, was := range []store.Document{none, as("head", "2"), as("head", "10"), as("a", "y"), as("none", "1")} {
		if e.wrote(s, c, was, "head", "3", "a", "", "c", "z") {
			e.Errorf("wrote though %q is not %q", was.Name, was.Value)
		}
	}
	if !e.wrote(s, c, as("head", "1"), "head", "2", "a", "", "c", "z", "never", "") {
		e.Error("a step was not made")
	}
	e.wantDocuments(s, c, nil, map[string]string{"head": "2", "b": "y", "c": "z"})
	e.wantDocuments(s, c, []string{"b", "a", "head"}, map[string]string{"head": "2", "b": "y"})
	e.wantDocuments(s, c, []string{}, nil)
	e.wantDocuments(s, "other things", nil, nil)
	if !e.wrote(s, "other things", none, "b", "other") {
		e.Error("another collection has a head")
	}
	e.wantDocuments(s, c, []string{"b"}, map[string]string{"b": "y"})
	// Names and values are any bytes that are text, or any bytes.
	strange, want := []string{}, map[string]string{"b": "other"}
	for i, name := range names() {
		if name == "" || len(name) > store.MaxDocumentName || strings.ToValidUTF8(name, "") != name {
			continue
		}
		value := strings.Repeat(string([]byte{byte(i), 0, 255, '\n'}), i+1)
		if !e.wrote(s, "other things", none, name, value) {
			e.Errorf("%.100q was not written", name)
		}
		strange, want[name] = append(strange, name), value
	}
	large := strings.Repeat("x", store.MaxDocument)
	e.wrote(s, "other things", none, "large", large)
	want["large"] = large
	e.wantDocuments(s, "other things", nil, want)
	delete(want, "large")
	delete(want, "b")
	e.wantDocuments(s, "other things", strange, want)
	if st := e.bucket("b", rolling(1, 1e9)).peek(); st.States[0].Used != 0 {
		e.Error("a document is a bucket")
	}
}

// testDocumentsRaced lets callers count up, each from the number that it has read.
func testDocumentsRaced(e *env) {
	s, implemented := optional[store.Documents](e)
	if !implemented || !s.KeepsDocuments() {
		return
	}
	const callers, each = 4, 8
	all := []store.Documents{s}
	if e.h.Second != nil {
		all = append(all, e.h.Second(e.T, e.s).(store.Documents)) //nolint:forcetypeassert // it is of the same kind
	}
	var group sync.WaitGroup
	for i := range callers {
		s := all[i%len(all)]
		group.Go(func() {
			for made := 0; made < each; {
				list, err := s.ReadDocuments(e.ctx(), "c", []string{"n"})
				if err != nil {
					e.Error(err)
					return
				}
				was, n := store.Document{Name: "n"}, 0
				if len(list) > 0 {
					was = list[0]
					n, _ = strconv.Atoi(string(was.Value))
				}
				n++
				done, err := s.WriteDocuments(e.ctx(), "c", was, []store.Document{
					{Name: "n", Value: []byte(strconv.Itoa(n))},
					{Name: fmt.Sprint("by ", n), Value: fmt.Append(nil, "caller ", i)},
				})
				if err != nil {
					e.Error(err)
					return
				}
				if done {
					made++
				}
			}
		})
	}
	group.Wait()
	list, err := s.ReadDocuments(e.ctx(), "c", nil)
	if err != nil || len(list) != callers*each+1 {
		e.Errorf("%d documents, %v; want one of each step and the number", len(list), err)
	}
	if i := slices.IndexFunc(list, func(d store.Document) bool { return d.Name == "n" }); i < 0 ||
		string(list[i].Value) != strconv.Itoa(callers*each) {
		e.Errorf("the number is not %d: a step overwrote another", callers*each)
	}
}

func testDocumentsShared(e *env) {
	s, implemented := optional[store.Documents](e)
	if !implemented || !s.KeepsDocuments() || e.h.Second == nil {
		return
	}
	other := e.h.Second(e.T, e.s).(store.Documents) //nolint:forcetypeassert // it is of the same kind
	e.wantDocuments(other, "c", nil, nil)
	e.wrote(s, "c", store.Document{Name: "a"}, "a", "1", "b", "2")
	e.wantDocuments(other, "c", nil, map[string]string{"a": "1", "b": "2"})
	if !e.wrote(other, "c", store.Document{Name: "a", Value: []byte("1")}, "a", "", "b", "3") {
		e.Error("the other process does not see what was written")
	}
	e.wantDocuments(s, "c", []string{"a", "b"}, map[string]string{"b": "3"})
}

func testDocumentsRefused(e *env) {
	s, implemented := optional[store.Documents](e)
	if !implemented || !s.KeepsDocuments() {
		return
	}
	e.wrote(s, "c", store.Document{Name: "a"}, "a", "1")
	long := strings.Repeat("n", store.MaxDocumentName+1)
	one := []store.Document{{Name: "b", Value: []byte("2")}}
	was := store.Document{Name: "a", Value: []byte("1")}
	for what, f := range map[string]func() (bool, error){
		"no collection":   func() (bool, error) { return s.WriteDocuments(e.ctx(), "", was, one) },
		"long collection": func() (bool, error) { return s.WriteDocuments(e.ctx(), long, was, one) },
		"no documents":    func() (bool, error) { return s.WriteDocuments(e.ctx(), "c", was, nil) },
		"too many": func() (bool, error) {
			var many []store.Document
			for i := range store.MaxDocuments + 1 {
				many = append(many, store.Document{Name: fmt.Sprint(i), Value: []byte("x")})
			}
			return s.WriteDocuments(e.ctx(), "c", was, many)
		},
		"twice": func() (bool, error) { return s.WriteDocuments(e.ctx(), "c", was, append(one, one...)) },
		"no name": func() (bool, error) {
			return s.WriteDocuments(e.ctx(), "c", was, []store.Document{{Value: []byte("2")}})
		},
		"empty": func() (bool, error) {
			return s.WriteDocuments(e.ctx(), "c", was, []store.Document{{Name: "b", Value: []byte{}}})
		},
		"too large": func() (bool, error) {
			return s.WriteDocuments(e.ctx(), "c", was, append([]store.Document{
				{Name: "l", Value: bytes.Repeat([]byte("x"), store.MaxDocument+1)},
			}, one...))
		},
	} {
		if done, err := f(); done || !errors.Is(err, store.ErrInvalid) {
			e.Errorf("%s: done %v, error %v", what, done, err)
		}
	}
	e.wantDocuments(s, "c", nil, map[string]string{"a": "1"})
}
