package dynamostore_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"github.com/drawgate/drawgate/internal/awstest"
	"github.com/drawgate/drawgate/internal/needs"
	"github.com/drawgate/drawgate/store"
	"github.com/drawgate/drawgate/store/dynamostore"
	"github.com/drawgate/drawgate/store/storetest"
)

// documentStore is a store on a moto, through a connection of its own.
type documentStore struct {
	*dynamostore.Store
	wire  *wire
	admin *dynamodb.Client
}

func newDocumentStore(t *testing.T, server *awstest.Server, prefix string) *documentStore {
	t.Helper()
	s := &documentStore{wire: &wire{next: direct}, admin: through(server, direct)}
	s.Store = dynamostore.New(through(server, s.wire), "drawgate", &dynamostore.Options{Prefix: prefix})
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// step changes the head from one value to another, "" is none, and writes a document with it.
func (s *documentStore) step(ctx context.Context, from, to string) (bool, error) {
	was := store.Document{Name: "head"}
	if from != "" {
		was.Value = []byte(from)
	}
	return s.WriteDocuments(ctx, "c", was, []store.Document{
		{Name: "head", Value: []byte(to)}, {Name: "to " + to, Value: []byte("x")},
	})
}

// names returns the names of all documents.
func (s *documentStore) names(t *testing.T) (names []string) {
	t.Helper()
	list, err := s.ReadDocuments(t.Context(), "c", nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range list {
		names = append(names, d.Name)
	}
	slices.Sort(names)
	return names
}

// cancelledBy is the service's answer to a transaction that was not carried out.
func cancelledBy(codes ...string) string {
	var reasons []string
	for _, c := range codes {
		reasons = append(reasons, fmt.Sprintf(`{"Code":%q,"Message":"secret"}`, c))
	}
	return strings.TrimSuffix(exception("TransactionCanceledException", "see the reasons"), "}") +
		`,"CancellationReasons":[` + strings.Join(reasons, ",") + "]}"
}

func TestDocuments(t *testing.T) {
	needs.NoRace(t) // one caller, but for the suite's case
	t.Parallel()
	server := awstest.Moto(t)
	h := harness(t, server)
	h.Without = leftOut(documents)
	storetest.Run(t, h)
	for name, f := range map[string]func(*testing.T, *awstest.Server){
		"writes": writesOfDocuments, "answer lost": answerLostToTheEnd, "reads": readsOfDocuments,
		"no buckets": documentsAreNoBuckets,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f(t, server)
		})
	}
}

// writesOfDocuments: each outcome of a request is told as what it is, or found out by
// another one with the same token.
func writesOfDocuments(t *testing.T, server *awstest.Server) {
	t.Helper()
	refusal := func(codes ...string) trouble { // of the first request
		return func(_ string, r *http.Request, send func() (*http.Response, error)) (*http.Response, error) {
			return answer(r, http.StatusBadRequest, cancelledBy(codes...)), nil
		}
	}
	lost := func(_ string, _ *http.Request, send func() (*http.Response, error)) (*http.Response, error) {
		if resp, err := send(); err != nil || resp.StatusCode != http.StatusOK {
			t.Errorf("moto: %v, %v", resp, err)
		}
		return nil, io.ErrUnexpectedEOF
	}
	for name, c := range map[string]struct {
		first   trouble // what happens to the first request; the second one arrives
		done    bool
		err     error // that is matched
		sent    int
		written bool
	}{
		"not sent": {func(string, *http.Request, func() (*http.Response, error)) (*http.Response, error) {
			return nil, &net.OpError{Op: "dial", Net: "tcp", Err: errors.New("refused")}
		}, true, nil, 2, true},
		"request lost": {func(string, *http.Request, func() (*http.Response, error)) (*http.Response, error) {
			return nil, io.ErrUnexpectedEOF
		}, true, nil, 2, true},
		// moto does not know tokens: to it the second request is another step
		"answer lost":   {lost, false, store.ErrUnknownOutcome, 2, true},
		"others write":  {refusal("None", "TransactionConflict"), true, nil, 2, true},
		"throttled":     {refusal("ThrottlingError", "None"), true, nil, 2, true},
		"not as it was": {refusal("TransactionConflict", "ConditionalCheckFailed"), false, nil, 1, false},
		"too large":     {refusal("None", "ValidationError"), false, store.ErrNothingDone, 1, false},
	} {
		t.Run(name, func(t *testing.T) {
			s := newDocumentStore(t, server, prefix())
			s.wire.troubled(func(op string, r *http.Request, send func() (*http.Response, error)) (*http.Response,
				error,
			) {
				s.wire.troubled(nil)
				return c.first(op, r, send)
			})
			done, err := s.step(t.Context(), "", "1")
			if done != c.done || !errors.Is(err, c.err) || c.err != nil && !errors.Is(err, store.ErrStoreUnavailable) {
				t.Errorf("done %t, error %v; want %t, %v", done, err, c.done, c.err)
			}
			if errors.Is(err, store.ErrNothingDone) && c.written ||
				err != nil && strings.Contains(err.Error(), "secret") {
				t.Errorf("the error says %v", err)
			}
			sent := s.wire.sent("TransactWriteItems")
			tokens := map[string]bool{}
			for _, r := range sent {
				tokens[regexp.MustCompile(`"ClientRequestToken":"[^"]+"`).FindString(r.body)] = true
			}
			if len(sent) != c.sent || len(tokens) != 1 || tokens[""] {
				t.Errorf("%d requests with the tokens %v, want %d with one", len(sent), tokens, c.sent)
			}
			if got := s.names(t); (len(got) == 2) != c.written {
				t.Errorf("there are %q", got)
			}
		})
	}
}

// answerLostToTheEnd: whoever leaves before the outcome is known is told so.
func answerLostToTheEnd(t *testing.T, server *awstest.Server) {
	t.Helper()
	s := newDocumentStore(t, server, prefix())
	ctx, leave := context.WithCancel(t.Context())
	s.wire.troubled(func(_ string, r *http.Request, send func() (*http.Response, error)) (*http.Response, error) {
		_, _ = send()
		leave()
		return nil, r.Context().Err()
	})
	if done, err := s.step(ctx, "", "1"); done || !errors.Is(err, store.ErrUnknownOutcome) {
		t.Errorf("done %t, %v", done, err)
	}
	s.wire.troubled(nil)
	if done, err := s.step(ctx, "1", "2"); done || !errors.Is(err, store.ErrNothingDone) {
		t.Errorf("whoever has left before: done %t, %v", done, err)
	}
	if got := s.names(t); !slices.Equal(got, []string{"head", "to 1"}) {
		t.Errorf("there are %q", got)
	}
}

// readsOfDocuments: a read that meets a step asks again, and a part that is missing is
// not an absent document.
func readsOfDocuments(t *testing.T, server *awstest.Server) {
	t.Helper()
	s := newDocumentStore(t, server, prefix())
	var docs []store.Document
	for i := range 12 { // one request reads fewer
		docs = append(docs, store.Document{Name: fmt.Sprint("to ", i), Value: []byte("x")})
	}
	if done, err := s.WriteDocuments(t.Context(), "c", store.Document{Name: "head"}, docs); !done || err != nil {
		t.Fatal(done, err)
	}
	reads := 0
	s.wire.troubled(func(_ string, r *http.Request, send func() (*http.Response, error)) (*http.Response, error) {
		s.wire.troubled(nil)
		reads++
		return answer(r, http.StatusBadRequest, cancelledBy("None", "TransactionConflict")), nil
	})
	if got := s.names(t); len(got) != len(docs) || reads != 1 {
		t.Errorf("%q after %d conflicts", got, reads)
	}
	s.wire.troubled(func(op string, r *http.Request, send func() (*http.Response, error)) (*http.Response, error) {
		body, _ := io.ReadAll(r.Body)
		r.Body = io.NopCloser(bytes.NewReader(body))
		if bytes.Contains(body, []byte("to 11")) {
			return answer(r, http.StatusOK, `{"Responses":[]}`), nil
		}
		return send()
	})
	if list, err := s.ReadDocuments(t.Context(), "c", nil); !errors.Is(err, store.ErrStoreUnavailable) || list != nil {
		t.Errorf("%d documents, %v", len(list), err)
	}
}

// documentsAreNoBuckets: their items do not expire, whatever they are called, nor does a list
// of buckets find them; and names of two collections do not meet.
func documentsAreNoBuckets(t *testing.T, server *awstest.Server) {
	t.Helper()
	s := newDocumentStore(t, server, "a")
	for _, c := range []string{"c", "c:c"} {
		for _, name := range []string{dynamostore.TTLAttribute, dynamostore.KeyAttribute, "c:c", "c"} {
			done, err := s.WriteDocuments(t.Context(), c, store.Document{Name: name},
				[]store.Document{{Name: name, Value: []byte(c)}})
			if !done || err != nil {
				t.Errorf("%q of %q: done %t, %v", name, c, done, err)
			}
		}
	}
	out, err := s.admin.Scan(t.Context(), &dynamodb.ScanInput{TableName: aws.String("drawgate")})
	if err != nil {
		t.Fatal(err)
	}
	if len(out.Items) < 2*4+2 {
		t.Errorf("%d items", len(out.Items))
	}
	for _, item := range out.Items {
		if _, expires := item[dynamostore.TTLAttribute]; expires {
			t.Errorf("an item can expire: %v", item[dynamostore.KeyAttribute])
		}
	}
	for _, tenant := range []string{"", "%document", "%names"} {
		for _, policy := range []string{"", "1", "c"} {
			err := s.List(t.Context(), tenant, policy, func(k store.Key) bool {
				t.Errorf("a document is listed as the bucket %+v", k)
				return true
			})
			if err != nil {
				t.Error(err)
			}
		}
	}
}

// TestDocumentsThatDynamoDBCannotKeep are refused before anything is sent.
func TestDocumentsThatDynamoDBCannotKeep(t *testing.T) {
	t.Parallel()
	wire := &wire{next: direct}
	s := dynamostore.New(through(&awstest.Server{URL: "http://127.0.0.1:1"}, wire), "drawgate", nil)
	t.Cleanup(func() { _ = s.Close() })
	var many []store.Document
	for i := range store.MaxDocuments {
		many = append(many, store.Document{Name: fmt.Sprint(i), Value: bytes.Repeat([]byte("x"), store.MaxDocument)})
	}
	for want, docs := range map[string][]store.Document{
		"more than 4000000 bytes": many,
		"not UTF-8":               {{Name: "\xff", Value: []byte("x")}},
	} {
		done, err := s.WriteDocuments(t.Context(), "c", store.Document{Name: "0"}, docs)
		if done || !errors.Is(err, store.ErrInvalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("done %t, %v; want %q", done, err, want)
		}
	}
	if list, err := s.ReadDocuments(t.Context(), "c", []string{"\xff", ""}); len(list) > 0 || err != nil {
		t.Errorf("%v, %v", list, err)
	}
	if n := len(wire.sent("")); n > 0 {
		t.Errorf("%d requests were sent", n)
	}
}
