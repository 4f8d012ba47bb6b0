package dynamostore_test

import (
	"fmt"
	"net/http"
	"reflect"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/drawgate/drawgate/store"
	"github.com/drawgate/drawgate/store/dynamostore"
)

// TestLooksAtManyBuckets: many buckets are read in few requests, those without an item, and one
// that is named twice, included; and one by one where the permission for that is missing.
//
// req: E5
func TestLooksAtManyBuckets(t *testing.T) {
	t.Parallel()
	server := empty(t)
	var mu sync.Mutex
	denied, sent := false, map[string]int{}
	line := &faulty{next: direct, fail: func(op string) (int, string) {
		mu.Lock()
		defer mu.Unlock()
		if sent[op]++; denied && op == "BatchGetItem" {
			return http.StatusBadRequest, exception("AccessDeniedException", "not authorized to perform: dynamodb:BatchGetItem")
		}
		return 0, ""
	}}
	s := dynamostore.New(through(server, line), "drawgate", &dynamostore.Options{Prefix: prefix()})
	t.Cleanup(func() { _ = s.Close() })
	plan := planOf(t, 1000)
	var many []store.BucketCost
	for i := range 230 {
		many = append(many, bucketsOf(plan, 1, fmt.Sprint(i))...)
		if i%3 == 0 {
			if _, err := takeOf(t.Context(), s, plan, fmt.Sprint(i), int64(i+1)); err != nil {
				t.Fatal(err)
			}
		}
	}
	many = append(many, many[3], many[4])
	damaged := len(many)
	many = append(many, store.BucketCost{Key: many[0].Key}) // it has no plan
	for _, denied = range []bool{false, true} {
		mu.Lock()
		clear(sent)
		mu.Unlock()
		out := make([]store.State, len(many))
		if err := s.Peek(t.Context(), many, 0, out); err != nil {
			t.Fatal(err)
		}
		for i := range many[:damaged] {
			used := int64(0)
			if n, err := strconv.Atoi(many[i].Key.Name); err == nil && n%3 == 0 {
				used = int64(n + 1)
			}
			if out[i].Fail != nil || len(out[i].States) != 1 || out[i].States[0].Used != used {
				t.Fatalf("denied %v: bucket %s: %+v, want %d used", denied, many[i].Key.Name, out[i], used)
			}
		}
		if out[damaged].Fail == nil {
			t.Error("a bucket without a plan was looked at")
		}
		mu.Lock()
		want := map[string]int{"BatchGetItem": 3}
		if denied {
			want = map[string]int{"BatchGetItem": sent["BatchGetItem"], "GetItem": 232}
		}
		if !reflect.DeepEqual(sent, want) {
			t.Errorf("denied %v: %v were sent, want %v", denied, sent, want)
		}
		mu.Unlock()
	}
}

// TestLooksOneByOne: where the permission to read many buckets in one request is missing, they are
// read at the same time, as before there was such a request.
//
// req: E5
func TestLooksOneByOne(t *testing.T) {
	t.Parallel()
	const atOnce = 16
	var sent atomic.Int64
	all := make(chan struct{})
	pass := sync.OnceFunc(func() { close(all) })
	line := &faulty{next: direct, fail: func(op string) (int, string) {
		switch op {
		case "BatchGetItem":
			return http.StatusBadRequest, exception("AccessDeniedException", "not authorized to perform: dynamodb:BatchGetItem")
		case "GetItem":
			if sent.Add(1) == atOnce {
				pass()
			}
			select {
			case <-all:
			case <-time.After(10 * time.Second):
				t.Errorf("%d looks are under way, want %d", sent.Load(), atOnce)
				pass()
			}
		}
		return 0, ""
	}}
	s := dynamostore.New(through(empty(t), line), "drawgate", &dynamostore.Options{Prefix: prefix()})
	t.Cleanup(func() { _ = s.Close() })
	var many []store.BucketCost
	plan := planOf(t, 1000)
	for i := range 100 {
		many = append(many, bucketsOf(plan, 1, fmt.Sprint(i))...)
	}
	out := make([]store.State, len(many))
	if err := s.Peek(t.Context(), many, 0, out); err != nil {
		t.Fatal(err)
	}
	for i := range out {
		if out[i].Fail != nil {
			t.Fatal(out[i].Fail)
		}
	}
}
