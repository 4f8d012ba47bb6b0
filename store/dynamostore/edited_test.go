package dynamostore_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/drawgate/drawgate/internal/storekey"
	"github.com/drawgate/drawgate/store"
	"github.com/drawgate/drawgate/store/dynamostore"
	"github.com/drawgate/drawgate/store/guard"
)

// TestEditedItems changes an item by hand. What only people read may be changed. Otherwise its
// bucket alone fails, the error says what to do, no take and no settlement changes the item, and a
// reset mends it.
func TestEditedItems(t *testing.T) {
	t.Parallel()
	server := empty(t)
	c := through(server, direct)
	type item = map[string]types.AttributeValue
	text, number := &types.AttributeValueMemberS{Value: "10"}, &types.AttributeValueMemberN{Value: "10"}
	entry := func(i item) []byte {
		for name, v := range i {
			if strings.HasPrefix(name, "e_") {
				return v.(*types.AttributeValueMemberB).Value
			}
		}
		t.Error("the item has no entry")
		return make([]byte, 9)
	}
	const edited, newer = "drawgate reset", "a newer version of Drawgate: upgrade"
	for name, edit := range map[string]struct {
		change func(item)
		says   string // "": it does no harm
	}{
		"tokens": {func(i item) {
			i["tokens"].(*types.AttributeValueMemberM).
				Value["limit"] = number
		}, ""},
		"tokens of another type":    {func(i item) { i["tokens"] = text }, ""},
		"no tokens":                 {func(i item) { delete(i, "tokens") }, ""},
		"lastRefillTimestamp":       {func(i item) { i["lastRefillTimestamp"] = number }, ""},
		"an attribute of their own": {func(i item) { i["comment"] = text }, ""},
		"a later ttl": {func(i item) {
			i["ttl"] = &types.AttributeValueMemberN{Value: fmt.Sprint(time.Now().Unix() + 1e8)}
		}, ""},
		"ttl of another type": {func(i item) { i["ttl"] = text }, edited},
		"ttl with a fraction": {
			func(i item) { i["ttl"] = &types.AttributeValueMemberN{Value: "4000000000.5"} },
			edited,
		},
		"no ttl": {func(i item) { delete(i, "ttl") }, edited},
		"a byte of the record": {func(i item) {
			b := i["record"].(*types.AttributeValueMemberB).Value
			b[len(b)/2] ^= 1
		}, edited},
		"record of another type": {func(i item) { i["record"] = text }, edited},
		"no record":              {func(i item) { delete(i, "record") }, edited},
		"a foreign item":         {func(i item) { clear(i); i["name"] = text }, edited},
		"a newer record":         {func(i item) { i["record"].(*types.AttributeValueMemberB).Value[0] = 99 }, newer},
		"a byte of an entry":     {func(i item) { entry(i)[5] ^= 1 }, edited},
		"a newer entry":          {func(i item) { entry(i)[0]++ }, newer},
		"limits cut short": {func(i item) {
			l := i["limits"].(*types.AttributeValueMemberS)
			l.Value = l.Value[1:]
		}, edited},
		"limits with another field": {func(i item) {
			l := i["limits"].(*types.AttributeValueMemberS)
			l.Value = strings.Replace(l.Value, "{", `{"colour":1,`, 1)
		}, newer},
		"no sum":                  {func(i item) { delete(i, "a0") }, edited},
		"sum of another type":     {func(i item) { i["a0"] = text }, edited},
		"a mark of another type":  {func(i item) { i["p_x"] = text }, edited},
		"a token of another type": {func(i item) { i["o_x"] = text }, edited},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			plan, opts := tenADay(t), &dynamostore.Options{Prefix: prefix()}
			open := func() *dynamostore.Store {
				s := dynamostore.NewWithError(c, "drawgate", opts, 0, 0)
				t.Cleanup(func() { _ = s.Close() })
				return s
			}
			first := open()
			first.Contest()
			for _, n := range []int64{3, 1} {
				if d, err := takeOf(t.Context(), first, plan, "SECRET", n); err != nil || !d.Allowed {
					t.Fatal(d, err)
				}
			}
			k := store.Key{Policy: "p", Name: "SECRET"}
			id, _ := storekey.Format(opts.Prefix, k)
			key := item{dynamostore.KeyAttribute: &types.AttributeValueMemberS{Value: id}}
			get := func() item {
				out, err := c.GetItem(t.Context(), &dynamodb.GetItemInput{
					TableName: aws.String("drawgate"), Key: key,
					ConsistentRead: aws.Bool(true),
				})
				if err != nil {
					t.Fatal(err)
				}
				return out.Item
			}
			kept := get()
			edit.change(kept)
			kept[dynamostore.KeyAttribute] = key[dynamostore.KeyAttribute]
			if _, err := c.PutItem(t.Context(), &dynamodb.PutItemInput{
				TableName: aws.String("drawgate"),
				Item:      kept,
			}); err != nil {
				t.Fatal(err)
			}
			s := open()
			d, err := takeOf(t.Context(), s, plan, "SECRET", 4)
			if edit.says == "" {
				if err != nil || !d.Allowed || used(t, s, plan, "SECRET") != 8 {
					t.Errorf("allowed %v, %v; want it to count 8", d.Allowed, err)
				}
				return
			}
			wantEdited(t, err, edit.says)
			_, err = settle(t.Context(), s, store.Settlement{Op: store.OpCharge, Buckets: bucketsOf(plan, 1, "SECRET")})
			wantEdited(t, err, edit.says)
			st := make([]store.State, 1)
			wantEdited(t, errors.Join(s.Peek(t.Context(), bucketsOf(plan, 0, "SECRET"), 0, st), st[0].Fail), edit.says)
			if d, err := takeOf(t.Context(), s, plan, "other", 1); err != nil || !d.Allowed {
				t.Errorf("another bucket: %v", err)
			}
			if now := get(); len(now) != len(kept) {
				t.Errorf("the item was changed: %v", now)
			}
			g := guard.New(s, &guard.Options{Instances: 1, Timeout: time.Minute})
			defer func() { _ = g.Close() }()
			if d, err := takeOf(t.Context(), g, plan, "SECRET", 1); err != nil || !d.Fallback || g.State().Unavailable {
				t.Errorf("behind a guard: by the fallback %v, unavailable %v, %v", d.Fallback, g.State().Unavailable,
					err)
			}
			if err := s.Reset(t.Context(), []store.Key{k}); err != nil {
				t.Fatal(err)
			}
			if d, err := takeOf(t.Context(), s, plan, "SECRET", 10); err != nil || !d.Allowed {
				t.Errorf("after a reset: %v, %v", d.Allowed, err)
			}
		})
	}
}

func wantEdited(t *testing.T, err error, says string) {
	t.Helper()
	se, ok := errors.AsType[*store.Error](err)
	if !ok || se.Fault != store.FaultBucket || !strings.Contains(err.Error(), says) ||
		strings.Contains(err.Error(), "SECRET") {
		t.Errorf("got %v, want a failure of the bucket that says what to do", err)
	}
}
