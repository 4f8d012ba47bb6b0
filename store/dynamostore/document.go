package dynamostore

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/drawgate/drawgate/store"
)

// Each document is an item, without an end. The table has no sort key by which a collection could
// be listed, and a scan would read all buckets. So the names of a collection are in items of their
// own, which the steps change that write documents. No part of a bucket's key begins with "%d" or
// "%n".
//
// Steps are transactions, and so is each read: of two plain reads the later one may not see yet
// what the earlier one has seen of a step. That needs no further permissions: those of a
// transaction are those of its parts.

const (
	attrDocument   = "document"
	nameAttrPrefix = "n_" // and a document's name, in one of the items with names
	namesItems     = 32   // of a collection: with one of them few documents would fill its 400 KB

	// A transaction has room for 4 MB: these many items of any size.
	mostRead    = 10
	mostWritten = 4_000_000 // bytes of keys and documents
)

var _ store.Documents = (*Store)(nil)

var (
	errStepTooLarge = fmt.Errorf("%w: dynamostore: the documents of a step have more than %d bytes together",
		store.ErrInvalid, mostWritten)
	errNotUTF8 = fmt.Errorf("%w: dynamostore: a document's name is not UTF-8", store.ErrInvalid)
)

// KeepsDocuments implements [store.Documents].
func (s *Store) KeepsDocuments() bool { return true }

// documentKey returns the key of an item of a collection. The length tells where its name ends.
func (s *Store) documentKey(kind, collection, name string) string {
	return fmt.Sprintf("%s:%%%s:%d:%s:%s", s.prefix, kind, len(collection), collection, name)
}

// namesKey returns the key of one of a collection's items with names.
func (s *Store) namesKey(collection string, i uint32) string {
	return s.documentKey("names", collection, strconv.FormatUint(uint64(i), 10))
}

// nameOf returns the key of the item with a document's name.
func (s *Store) nameOf(collection, document string) string {
	h := fnv.New32a()
	_, _ = h.Write([]byte(document))
	return s.namesKey(collection, h.Sum32()%namesItems)
}

// ReadDocuments implements [store.Documents].
func (s *Store) ReadDocuments(ctx context.Context, collection string, names []string) (list []store.Document,
	err error,
) {
	if err := store.CheckDocuments(collection); err != nil {
		return nil, err
	}
	if err := s.begin(ctx, "read"); err != nil {
		return nil, err
	}
	defer s.calls.Done()
	if names == nil {
		if names, err = s.documentNames(ctx, collection); err != nil {
			return nil, failure("read", err)
		}
	}
	// A transaction names no item twice, and text that is not UTF-8 would be sent as another one.
	names = slices.DeleteFunc(slices.Compact(slices.Sorted(slices.Values(names))), func(name string) bool {
		return name == "" || len(name) > store.MaxDocumentName || !utf8.ValidString(name)
	})
	var keys []string
	for _, name := range names {
		keys = append(keys, s.documentKey("document", collection, name))
	}
	items, err := s.readItems(ctx, keys)
	if err != nil {
		return nil, failure("read", err)
	}
	for i, item := range items {
		if value, ok := item[attrDocument].(*types.AttributeValueMemberB); ok {
			list = append(list, store.Document{Name: names[i], Value: value.Value})
		}
	}
	return list, nil
}

// documentNames returns the names of the documents of a collection.
func (s *Store) documentNames(ctx context.Context, collection string) (names []string, err error) {
	var keys []string
	for i := range uint32(namesItems) {
		keys = append(keys, s.namesKey(collection, i))
	}
	items, err := s.readItems(ctx, keys)
	for _, item := range items {
		for attribute := range item {
			if name, ok := strings.CutPrefix(attribute, nameAttrPrefix); ok {
				names = append(names, name)
			}
		}
	}
	return names, err
}

// readItems reads items, some at the same time. One that is not there is empty.
func (s *Store) readItems(ctx context.Context, keys []string) ([]map[string]types.AttributeValue, error) {
	const atOnce = 16
	items := make([]map[string]types.AttributeValue, len(keys))
	errs := make([]error, (len(keys)+mostRead-1)/mostRead)
	limit := make(chan struct{}, atOnce)
	var all sync.WaitGroup
	for i := range errs {
		first, end := i*mostRead, min((i+1)*mostRead, len(keys))
		limit <- struct{}{}
		all.Go(func() {
			defer func() { <-limit }()
			errs[i] = s.readSome(ctx, keys[first:end], items[first:end])
		})
	}
	all.Wait()
	return items, cmp.Or(errs...) // one says enough
}

// readSome reads items in one transaction.
func (s *Store) readSome(ctx context.Context, keys []string, items []map[string]types.AttributeValue) error {
	in := &dynamodb.TransactGetItemsInput{}
	for _, key := range keys {
		in.TransactItems = append(in.TransactItems,
			types.TransactGetItem{Get: &types.Get{TableName: &s.table, Key: primary(key)}})
	}
	for failed := 0; ; {
		out, err := s.client.TransactGetItems(ctx, in, plainBody)
		if err == nil && len(out.Responses) != len(keys) {
			return errors.New("the answer has not as many items as were asked for")
		}
		if err == nil {
			for i := range out.Responses {
				items[i] = out.Responses[i].Item
			}
			return nil
		}
		if failed++; !s.again(ctx, err, failed) {
			return s.explain(err)
		}
	}
}

// WriteDocuments implements [store.Documents]. What DynamoDB cannot write in one step is
// [store.ErrInvalid]: 4 MB, or a name that is not UTF-8.
func (s *Store) WriteDocuments(ctx context.Context, collection string, was store.Document, docs []store.Document,
) (done bool, err error) {
	if err := store.CheckWrite(collection, was, docs); err != nil {
		return false, err
	}
	in, err := s.documentStep(collection, was, docs)
	if err != nil {
		return false, err
	}
	if err := s.begin(ctx, "write"); err != nil {
		return false, err
	}
	defer s.calls.Done()
	done, err = s.writeStep(ctx, in)
	return done, failure("write", err)
}

// writeStep sends a step until its outcome is known. The service makes one with a token once, and
// answers as it did if it gets it again. Services like it may not know tokens: so where an answer
// was lost, and the document is not any more as it was, the outcome is unknown.
func (s *Store) writeStep(ctx context.Context, in *dynamodb.TransactWriteItemsInput) (done bool, err error) {
	token := rand.Text()
	in.ClientRequestToken = &token
	unsure := false
	for failed := 0; ; {
		_, err := s.client.TransactWriteItems(ctx, in, plainBody)
		if err == nil {
			return true, nil
		}
		what := classify(err)
		if what == conflict && !unsure {
			return false, nil
		}
		unsure = unsure || what == unknown
		if failed++; what != conflict && s.again(ctx, err, failed) {
			continue
		}
		if unsure {
			return false, fmt.Errorf("%w: %w", store.ErrUnknownOutcome, s.explain(err))
		}
		return false, &undoneError{s.explain(err)}
	}
}

// documentStep returns the transaction of a step.
func (s *Store) documentStep(collection string, was store.Document, docs []store.Document,
) (*dynamodb.TransactWriteItemsInput, error) {
	if !slices.ContainsFunc(docs, func(d store.Document) bool { return d.Name == was.Name }) {
		docs = append(slices.Clip(docs), was) // if it is so, writing it changes nothing
	}
	in, names, size := &dynamodb.TransactWriteItemsInput{}, map[string]*update{}, 0
	for i := range docs {
		d := &docs[i]
		if !utf8.ValidString(d.Name) || !utf8.ValidString(collection) {
			return nil, errNotUTF8
		}
		key := s.documentKey("document", collection, d.Name)
		size += len(KeyAttribute) + len(key) + len(attrDocument) + len(d.Value)
		in.TransactItems = append(in.TransactItems, s.writing(key, d, &was))
		s.note(names, s.nameOf(collection, d.Name), d)
	}
	if size > mostWritten {
		return nil, errStepTooLarge
	}
	for _, key := range slices.Sorted(maps.Keys(names)) { // a token's sendings are the same
		u := names[key].input()
		if len(u.ExpressionAttributeValues) == 0 {
			u.ExpressionAttributeValues = nil // the service takes no empty ones
		}
		in.TransactItems = append(in.TransactItems, types.TransactWriteItem{Update: &types.Update{
			TableName: u.TableName, Key: u.Key, UpdateExpression: u.UpdateExpression,
			ExpressionAttributeNames:  u.ExpressionAttributeNames,
			ExpressionAttributeValues: u.ExpressionAttributeValues,
		}})
	}
	return in, nil
}

// writing returns the write of a document: on the condition that it is as it was, if it is that
// one.
func (s *Store) writing(key string, d, was *store.Document) (w types.TransactWriteItem) {
	var condition *string
	var names map[string]string
	var values map[string]types.AttributeValue
	if d.Name == was.Name {
		condition, names = aws.String("attribute_not_exists(#document)"), map[string]string{"#document": attrDocument}
	}
	if condition != nil && was.Value != nil {
		condition = aws.String("#document = :was")
		values = map[string]types.AttributeValue{":was": &types.AttributeValueMemberB{Value: was.Value}}
	}
	if d.Value == nil {
		w.Delete = &types.Delete{
			TableName: &s.table, Key: primary(key), ConditionExpression: condition,
			ExpressionAttributeNames: names, ExpressionAttributeValues: values,
		}
		return w
	}
	item := primary(key)
	item[attrDocument] = &types.AttributeValueMemberB{Value: d.Value}
	w.Put = &types.Put{
		TableName: &s.table, Item: item, ConditionExpression: condition,
		ExpressionAttributeNames: names, ExpressionAttributeValues: values,
	}
	return w
}

// note adds or removes the name of a document in an item with names.
func (s *Store) note(names map[string]*update, key string, d *store.Document) {
	u := names[key]
	if u == nil {
		u = newUpdate(s.table, key)
		names[key] = u
	}
	if d.Value == nil {
		u.drop(nameAttrPrefix + d.Name)
		return
	}
	u.set(nameAttrPrefix+d.Name, &types.AttributeValueMemberBOOL{Value: true})
}

// cancelled says what it means that a transaction was not carried out.
func cancelled(e *types.TransactionCanceledException) outcome {
	what := notDone // others are writing one of the items
	for i := range e.CancellationReasons {
		switch code := aws.ToString(e.CancellationReasons[i].Code); {
		case code == "ConditionalCheckFailed":
			return conflict
		case code == "ValidationError":
			what = hopeless
		case what == notDone && (code == "ProvisionedThroughputExceeded" || strings.HasPrefix(code, "Throttling")):
			what = throttled
		}
	}
	return what
}
