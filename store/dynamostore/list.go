package dynamostore

import (
	"context"
	"strings"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/drawgate/drawgate/internal/storekey"
	"github.com/drawgate/drawgate/store"
)

// list reads the table page by page, unless there is an index.
func (s *Store) list(ctx context.Context, tenant, policy string, yield func(store.Key) bool) error {
	if strings.HasPrefix(policy, store.OwnPolicies) {
		return s.listIndexed(ctx, tenant, policy, yield)
	}
	filter := "begins_with(#key, :start)"
	in := &dynamodb.ScanInput{
		TableName: &s.table, ConsistentRead: &yes, FilterExpression: &filter,
		ExpressionAttributeNames: map[string]string{"#key": KeyAttribute},
		ExpressionAttributeValues: map[string]types.AttributeValue{
			":start": &types.AttributeValueMemberS{Value: storekey.Start(s.prefix, tenant, policy)},
		},
	}
	for {
		sent := s.clock.real()
		out, err := s.client.Scan(ctx, in, plainBody)
		if err != nil {
			return s.explain(err)
		}
		if _, err := s.heard(sent, out.ResultMetadata, nil); err != nil {
			return err
		}
		for _, item := range out.Items {
			k, ok := s.inUse(item, tenant, policy)
			if ok && !yield(k) {
				return nil
			}
		}
		if len(out.LastEvaluatedKey) == 0 {
			return nil
		}
		in.ExclusiveStartKey = out.LastEvaluatedKey
	}
}

// inUse returns the key of an item, and whether it belongs to a policy and would be missed. What
// cannot be read is in use.
func (s *Store) inUse(item map[string]types.AttributeValue, tenant, policy string) (k store.Key, ok bool) {
	name, ok := item[KeyAttribute].(*types.AttributeValueMemberS)
	if !ok {
		return k, false
	}
	parts := ""
	if p, ok := item[attrParts].(*types.AttributeValueMemberB); ok {
		parts = string(p.Value)
	}
	k, err := storekey.Parse(s.prefix, name.Value, parts)
	if err != nil || k.Tenant != tenant || k.Policy != policy {
		return k, false
	}
	at, known := s.clock.now()
	img, err := readImage(item)
	if err != nil || !known {
		return k, true
	}
	rec, err := s.bucket(img, at.early)
	return k, err != nil || rec.Until() > at.early
}
