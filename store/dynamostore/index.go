package dynamostore

import (
	"context"
	"slices"
	"strconv"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/drawgate/drawgate/internal/storekey"
	"github.com/drawgate/drawgate/store"
)

// attrNames has the names of the buckets of a policy of our own that were noted: a set, in an item
// whose key is no bucket's.
const attrNames = "names"

// mostNames is how many names one request adds.
const mostNames = 100

// indexKey is the key of the item that notes the buckets of a tenant and a policy.
func (s *Store) indexKey(tenant, policy string) string {
	return s.prefix + ":%index" + storekey.Start("", tenant, policy)
}

// Index implements [store.Indexer].
func (s *Store) Index(ctx context.Context, keep time.Duration, keys []store.Key) error {
	if err := s.begin(ctx, "index"); err != nil {
		return err
	}
	defer s.calls.Done()
	names := map[string][]string{}
	for _, k := range keys {
		at := s.indexKey(k.Tenant, k.Policy)
		names[at] = append(names[at], k.Name)
	}
	until := strconv.FormatInt(time.Now().Add(keep).Unix(), 10)
	for at, list := range names {
		for some := range slices.Chunk(list, mostNames) {
			if err := s.addNames(ctx, at, until, some); err != nil {
				return failure("index", s.explain(err))
			}
		}
	}
	return nil
}

func (s *Store) addNames(ctx context.Context, at, until string, names []string) error {
	update := "ADD #names :names SET #ttl = :until"
	_, err := s.client.UpdateItem(ctx, &dynamodb.UpdateItemInput{
		TableName: &s.table, Key: primary(at), UpdateExpression: &update,
		ExpressionAttributeNames: map[string]string{"#names": attrNames, "#ttl": TTLAttribute},
		ExpressionAttributeValues: map[string]types.AttributeValue{
			":names": &types.AttributeValueMemberSS{Value: names},
			":until": &types.AttributeValueMemberN{Value: until},
		},
	}, plainBody)
	return err
}

// listIndexed lists the buckets that were noted.
func (s *Store) listIndexed(ctx context.Context, tenant, policy string, yield func(store.Key) bool) error {
	out, err := s.client.GetItem(ctx, &dynamodb.GetItemInput{
		TableName: &s.table, Key: primary(s.indexKey(tenant, policy)), ConsistentRead: &yes,
	}, plainBody)
	if err != nil {
		return s.explain(err)
	}
	if set, ok := out.Item[attrNames].(*types.AttributeValueMemberSS); ok {
		for _, name := range set.Value {
			if !yield(store.Key{Tenant: tenant, Policy: policy, Name: name}) {
				break
			}
		}
	}
	return nil
}
