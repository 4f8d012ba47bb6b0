package client_test

import (
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/drawgate/drawgate/api"
	"github.com/drawgate/drawgate/client"
	"github.com/drawgate/drawgate/store/memstore"
	"github.com/drawgate/drawgate/store/sqlitestore"
)

// req: D5, U14, U15
func TestHistoryAndAdjust(t *testing.T) {
	t.Parallel()
	store, err := sqlitestore.Open(filepath.Join(t.TempDir(), "x.db"), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	c := dial(t, listen(t, newServer(t, store, nil).AdminHandler()), nil)
	began := time.Now().Add(-time.Second)
	for i, task := range []string{"nightly", "hourly", "nightly"} {
		q := take(fmt.Sprint("k", i), 7)
		q.Labels = map[string]string{"task": task}
		if _, err := c.Take(t.Context(), q); err != nil {
			t.Fatal(err)
		}
	}
	used := int64(100)
	out, err := c.Adjust(t.Context(), api.AdjustRequest{
		Policy: "llm", Key: "k1", Limit: "tpm", Used: &used,
		Reason: "seen",
	})
	if want := (api.AdjustAnswer{Policy: "llm", Limit: "tpm", Was: 7, Used: 100}); err != nil || out != want {
		t.Errorf("%+v, %v; want %+v", out, err, want)
	}
	key, none := "k1", ""
	for i, v := range []struct {
		q    client.HistoryQuery
		want []string
	}{
		{client.HistoryQuery{}, []string{"take k0", "take k1", "take k2", "charge k1"}},
		{
			client.HistoryQuery{Labels: []string{"task=nightly"}, Policy: "llm", Op: "take", Tenant: &none},
			[]string{"take k0", "take k2"},
		},
		{
			client.HistoryQuery{Key: &key, Since: began, Until: time.Now().Add(time.Minute)},
			[]string{"take k1", "charge k1"},
		},
		{client.HistoryQuery{Last: 1}, []string{"charge k1"}},
		{client.HistoryQuery{Until: began}, nil},
	} {
		var got []string
		for e, err := range c.History(t.Context(), v.q) {
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, e.Op+" "+e.Key)
		}
		if !slices.Equal(got, v.want) {
			t.Errorf("query %d: %q, want %q", i, got, v.want)
		}
	}
	for range c.History(t.Context(), client.HistoryQuery{}) {
		break // a reader may stop
	}
}

// TestAHistoryThatIsNone is an error that says why, and so is one that is cut.
func TestAHistoryThatIsNone(t *testing.T) {
	t.Parallel()
	first := func(c *client.Client) (n int, err error) {
		for _, e := range c.History(t.Context(), client.HistoryQuery{}) {
			if e != nil {
				return n, e
			}
			n++
		}
		return n, nil
	}
	if _, err := first(plain(t)); client.Code(err) != api.CodeNotSupported {
		t.Errorf("a store without a history: %v", err)
	}
	public := dial(t, listen(t, newServer(t, memstore.New(nil), nil)), nil)
	if _, err := first(public); client.Code(err) != api.CodeNotFound {
		t.Errorf("the public address: %v", err)
	}
	for body, want := range map[string]string{
		"{\"op\":\"take\"}\n{\"op\":\"ta": "ended too early", "not JSON": "ended too early",
	} {
		c := dial(t, listen(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", api.HistoryType)
			_, _ = io.WriteString(w, body)
		})), nil)
		if n, err := first(c); err == nil || !strings.Contains(err.Error(), want) || n > 1 {
			t.Errorf("%q: %d events, %v", body, n, err)
		}
	}
	other := dial(t, listen(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_,
			_ = io.WriteString(w, "<html>hello")
	})), nil)
	if _, err := first(other); err == nil || !strings.Contains(err.Error(), "is the address right?") {
		t.Errorf("another server: %v", err)
	}
}
