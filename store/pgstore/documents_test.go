package pgstore_test

import (
	"fmt"
	"net/url"
	"sync"
	"testing"

	"github.com/drawgate/drawgate/internal/pgtest"
	"github.com/drawgate/drawgate/store"
	"github.com/drawgate/drawgate/store/pgstore"
)

// TestDocumentsByTwoURLs has two stores write the same document, of which one finds the tables by
// the search path: only one of two that expect none may write it.
func TestDocumentsByTwoURLs(t *testing.T) {
	t.Parallel()
	named := pgtest.Shared(t).Schema(t)
	u, err := url.Parse(named)
	if err != nil {
		t.Fatal(err)
	}
	q := u.Query()
	q.Set("search_path", q.Get("schema"))
	q.Del("schema")
	u.RawQuery = q.Encode()
	stores := []*pgstore.Store{open(t, named, nil), open(t, u.String(), nil)}
	if err := stores[0].Ping(t.Context()); err != nil { // makes the tables
		t.Fatal(err)
	}
	for i := range 100 {
		name := fmt.Sprint("d", i)
		var done [2]bool
		var writers sync.WaitGroup
		for j, s := range stores {
			writers.Go(func() {
				var err error
				done[j], err = s.WriteDocuments(t.Context(), "c", store.Document{Name: name},
					[]store.Document{{Name: name, Value: fmt.Append(nil, j)}})
				if err != nil {
					t.Error(err)
				}
			})
		}
		writers.Wait()
		if done[0] == done[1] {
			t.Fatalf("of two that expect no document, one %t and one %t wrote it", done[0], done[1])
		}
	}
}
