package dynamostore

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
)

// CheckTable returns what keeps a [Store] from working on a table, or from working well. It returns
// nothing if all is well. It changes nothing: it also tries the calls that write, on a key that no
// bucket has, with a condition that never holds. That costs a few capacity units.
func CheckTable(ctx context.Context, client *dynamodb.Client, name string) []Finding {
	t := newTableAdmin(client, name)
	if f := t.credentials(ctx); f != nil {
		return []Finding{*f}
	}
	var findings []Finding
	table, err := t.describe(ctx)
	switch {
	case apiCode(err) == codeAccessDenied: // the store works without it, unless other permissions are missing too
		findings = append(findings, asWarning(t.finding(ctx, "DescribeTable", err),
			"so the table itself is not checked"))
	case err != nil:
		return []Finding{t.finding(ctx, "DescribeTable", err)}
	default:
		if f := t.keySchema(table); f != nil {
			findings = append(findings, *f)
		}
		if !usable(table.TableStatus) {
			findings = append(findings, t.notActive(table.TableStatus))
		}
		if len(findings) > 0 {
			return findings
		}
		findings = append(findings, t.judge(table)...)
	}
	if f := t.checkTTL(ctx); f != nil {
		findings = append(findings, *f)
	}
	return append(findings, t.checkCalls(ctx)...)
}

// asWarning makes a finding a warning, and adds why.
func asWarning(f Finding, why string) Finding {
	f.Warning = true
	f.Message += ", " + why
	return f
}

// keySchema returns a finding if the table's key is not the store's.
func (t *tableAdmin) keySchema(table *types.TableDescription) *Finding {
	var keys []string
	right := len(table.KeySchema) == 1
	for _, k := range table.KeySchema {
		name, kind, word := aws.ToString(k.AttributeName), types.ScalarAttributeType(""), "partition key"
		i := slices.IndexFunc(table.AttributeDefinitions,
			func(d types.AttributeDefinition) bool { return aws.ToString(d.AttributeName) == name })
		if i >= 0 {
			kind = table.AttributeDefinitions[i].AttributeType
		}
		if k.KeyType == types.KeyTypeRange {
			word = "sort key"
		}
		right = right && k.KeyType == types.KeyTypeHash && name == KeyAttribute && kind == types.ScalarAttributeTypeS
		keys = append(keys, fmt.Sprintf("the %s %s (type %s)", word, name, kind))
	}
	if right {
		return nil
	}
	return &Finding{
		Code:    CodeKeySchema,
		Message: fmt.Sprintf("the table has %s, not just the partition key %s (type S)", joined(keys), KeyAttribute),
		Advice:  "a table's key cannot be changed: create another table with \"drawgate table create\"",
	}
}

func (t *tableAdmin) notActive(s types.TableStatus) Finding {
	f := Finding{
		Code: CodeNotActive, Message: fmt.Sprintf("the table is not active: its status is %s", s),
		Advice: "wait until it is active",
	}
	switch s {
	case types.TableStatusDeleting:
		f.Advice = "wait until it is gone, then create it again with \"drawgate table create\""
	case types.TableStatusInaccessibleEncryptionCredentials:
		f.Advice = "give the table access to its KMS key again"
	case types.TableStatusArchiving, types.TableStatusArchived:
		f.Advice = "restore it from its backup, or create another one"
	}
	return f
}

// smallCapacity is the provisioned capacity, in units a second, below which it is probably too
// little. A decision writes one unit for each KB of its bucket.
const smallCapacity = 10

// judge returns warnings about an active table with the right key.
func (t *tableAdmin) judge(table *types.TableDescription) (findings []Finding) {
	read, write := provisioned(table)
	if write > 0 && (write < smallCapacity || read < smallCapacity) {
		findings = append(findings, Finding{
			Warning: true, Code: CodeCapacity,
			Message: fmt.Sprintf("the provisioned capacity is %d read and %d write units a second, and each decision writes at least one", read, write),
			Advice:  "use capacity on demand, or raise it if there are more decisions than that",
		})
	}
	if o := table.OnDemandThroughput; o != nil && within(o.MaxWriteRequestUnits, smallCapacity) {
		findings = append(findings, Finding{
			Warning: true, Code: CodeCapacity,
			Message: fmt.Sprintf("the table has a maximum of %d write units a second, and each decision writes at least one", *o.MaxWriteRequestUnits),
			Advice:  "raise the maximum throughput if there are more decisions than that",
		})
	}
	if len(table.Replicas) > 0 && table.MultiRegionConsistency != types.MultiRegionConsistencyStrong {
		findings = append(findings, Finding{
			Warning: true, Code: CodeReplicas,
			Message: "the table has replicas in other regions, whose writes overwrite each other: a limit holds only if all processes use one region",
			Advice: "use a table without replicas, or name the same region everywhere: dynamodb://" + t.name +
				"?region=REGION",
		})
	}
	return findings
}

// within reports whether a maximum is set, and below a number.
func within(most *int64, below int64) bool { return most != nil && *most > 0 && *most < below }

// checkTTL returns a warning unless DynamoDB deletes expired items.
func (t *tableAdmin) checkTTL(ctx context.Context) *Finding {
	attribute, err := t.ttl(ctx)
	switch {
	case apiCode(err) == codeUnknownOperation:
		return t.noTTL()
	case err != nil:
		f := asWarning(t.finding(ctx, "DescribeTimeToLive", err),
			"so it is not known whether expired items are deleted")
		return &f
	case attribute == TTLAttribute:
		return nil
	case attribute != "":
		return t.otherTTL(attribute, true)
	}
	return &Finding{
		Warning: true, Code: CodeTTL,
		Message: "time to live is off: items of buckets that are no longer used stay in the table, and cost storage",
		Advice:  "run \"drawgate table create\", which switches it on for the attribute " + TTLAttribute,
	}
}

// otherTTL is about a table whose items are deleted by another attribute.
func (t *tableAdmin) otherTTL(attribute string, warning bool) *Finding {
	return &Finding{
		Warning: warning, Code: CodeTTL,
		Message: fmt.Sprintf("time to live is on for the attribute %s, not %s: items of buckets that are no longer used stay in the table", attribute, TTLAttribute),
		Advice:  "switch it off with \"aws dynamodb update-time-to-live\", and run \"drawgate table create\" an hour later; or use another table",
	}
}

// noTTL is about a stand-in for DynamoDB that has no time to live.
func (t *tableAdmin) noTTL() *Finding {
	return &Finding{
		Warning: true, Code: CodeTTL,
		Message: "this server has no time to live: items of buckets that are no longer used stay in the table",
		Advice:  "nothing, if this is a stand-in for tests",
	}
}

// The key and the attribute of the calls that change nothing. The key of a bucket has more colons,
// and no item has the attribute.
const (
	checkKey       = "drawgate:check"
	checkCondition = "attribute_exists(drawgateCheck)"
)

// checkCalls makes each call of the store once, and returns what fails.
func (t *tableAdmin) checkCalls(ctx context.Context) (findings []Finding) {
	key := map[string]types.AttributeValue{KeyAttribute: &types.AttributeValueMemberS{Value: checkKey}}
	condition := aws.String(checkCondition)
	calls := []struct {
		action string
		call   func() error
	}{
		{"GetItem", func() error {
			_, err := t.client.GetItem(ctx, &dynamodb.GetItemInput{
				TableName: &t.name, Key: key,
				ConsistentRead: aws.Bool(true),
			}, withRetries)
			return err
		}},
		{"UpdateItem", func() error {
			_, err := t.client.UpdateItem(ctx, &dynamodb.UpdateItemInput{
				TableName: &t.name, Key: key,
				ConditionExpression: condition,
			}, withRetries)
			return err
		}},
		{"PutItem", func() error {
			_, err := t.client.PutItem(ctx, &dynamodb.PutItemInput{
				TableName: &t.name, Item: key,
				ConditionExpression: condition,
			}, withRetries)
			return err
		}},
		{"DeleteItem", func() error {
			_, err := t.client.DeleteItem(ctx, &dynamodb.DeleteItemInput{
				TableName: &t.name, Key: key,
				ConditionExpression: condition,
			}, withRetries)
			return err
		}},
		{"Scan", func() error {
			_, err := t.client.Scan(ctx, &dynamodb.ScanInput{
				TableName: &t.name, Limit: aws.Int32(1),
				ProjectionExpression: aws.String(KeyAttribute),
			}, withRetries)
			return err
		}},
	}
	for _, c := range calls {
		err := c.call()
		if _, refused := errors.AsType[*types.ConditionalCheckFailedException](err); err == nil || refused {
			continue
		}
		f := t.finding(ctx, c.action, err)
		if c.action == "Scan" {
			f = asWarning(f, "so keys cannot be listed")
		}
		findings = append(findings, f)
		if f.Code != CodePermission && f.Code != CodeCapacity {
			break // the others would fail in the same way
		}
	}
	return findings
}
