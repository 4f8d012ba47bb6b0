package dynamostore

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/drawgate/drawgate/store"
)

// TableOptions says how [CreateTable] makes a table. The zero value is ready to use.
type TableOptions struct {
	ReadUnits, WriteUnits int64 // provisioned capacity a second; both 0 means on demand
	Tags                  map[string]string
	DeletionProtection    bool
}

// TableError is why [CreateTable] failed.
type TableError struct {
	Table string
	Finding
	Err error // the SDK's error; nil if AWS's answer itself is what is wrong
}

// Error implements error.
func (e *TableError) Error() string {
	return fmt.Sprintf("dynamostore: table %s: %s; %s", e.Table, e.Message, e.Advice)
}

// Differs reports whether there is a table, but not as it should be.
func (e *TableError) Differs() bool {
	return e.Err == nil && (e.Code == CodeKeySchema || e.Code == CodeTTL || e.Code == CodeSettings)
}

// Unwrap returns the SDK's error.
func (e *TableError) Unwrap() error { return e.Err }

// How often a new table is asked for its state. The SDK's own waiter would wait 20 s after the
// first miss.
const (
	firstPoll   = 250 * time.Millisecond
	longestPoll = 3 * time.Second
)

// CreateTable creates a table for a [Store], waits until it is active, and switches on the deletion
// of expired items. created is false if the table existed; that is fine if it has the right key,
// and everything that opts names. CreateTable never changes an existing table, except that it
// switches on the deletion if that is off.
//
// opts may be nil. Findings are warnings about the table that is there now. The error is a
// [TableError], or [store.ErrInvalid]; ctx bounds the wait.
func CreateTable(ctx context.Context, client *dynamodb.Client, name string, opts *TableOptions) (created bool,
	findings []Finding, err error,
) {
	var o TableOptions
	if opts != nil {
		o = *opts
	}
	if err := (Location{Table: name}).checkTable(); err != nil {
		return false, nil, err
	}
	if o.ReadUnits < 0 || o.WriteUnits < 0 || (o.ReadUnits == 0) != (o.WriteUnits == 0) {
		return false, nil,
			fmt.Errorf("%w: dynamostore: read units %d and write units %d: give both, at least 1, or neither for on-demand capacity", store.ErrInvalid, o.ReadUnits, o.WriteUnits)
	}
	t := newTableAdmin(client, name)
	if f := t.credentials(ctx); f != nil {
		return false, nil, &TableError{name, *f, f.err}
	}
	table, err := t.describe(ctx)
	if apiCode(err) == codeNotFound {
		table, created, err = t.create(ctx, &o)
	} else if err == nil {
		table, err = t.awaitActive(ctx, table)
	}
	if err != nil {
		return created, nil, t.failed(ctx, "CreateTable", err)
	}
	if !created {
		if f := t.differences(table, &o); f != nil {
			return false, nil, &TableError{name, *f, nil}
		}
	}
	f := t.switchOnTTL(ctx)
	if f != nil && !f.Warning {
		return created, nil, &TableError{name, *f, f.err}
	} else if f != nil {
		findings = append(findings, *f)
	}
	return created, append(findings, t.judge(table)...), nil
}

// tableAdmin asks about one table. It retries, because nobody waits for a decision meanwhile.
type tableAdmin struct {
	client *dynamodb.Client
	name   string
}

func newTableAdmin(client *dynamodb.Client, name string) *tableAdmin {
	return &tableAdmin{client, name}
}

// withRetries lets a call be tried three times, which the client itself does not.
func withRetries(o *dynamodb.Options) {
	plainBody(o)
	o.Retryer = retry.NewStandard()
}

func (t *tableAdmin) describe(ctx context.Context) (*types.TableDescription, error) {
	out, err := t.client.DescribeTable(ctx, &dynamodb.DescribeTableInput{TableName: &t.name}, withRetries)
	if err != nil {
		return nil, err
	}
	return out.Table, nil
}

// create creates the table and returns it when it is active. created is false if another process
// was first.
func (t *tableAdmin) create(ctx context.Context, o *TableOptions) (table *types.TableDescription, created bool,
	err error,
) {
	in := &dynamodb.CreateTableInput{
		TableName: &t.name,
		AttributeDefinitions: []types.AttributeDefinition{{
			AttributeName: aws.String(KeyAttribute),
			AttributeType: types.ScalarAttributeTypeS,
		}},
		KeySchema: []types.KeySchemaElement{{
			AttributeName: aws.String(KeyAttribute),
			KeyType:       types.KeyTypeHash,
		}},
		BillingMode:               types.BillingModePayPerRequest,
		DeletionProtectionEnabled: &o.DeletionProtection,
	}
	if o.WriteUnits > 0 {
		in.BillingMode = types.BillingModeProvisioned
		in.ProvisionedThroughput = &types.ProvisionedThroughput{
			ReadCapacityUnits:  &o.ReadUnits,
			WriteCapacityUnits: &o.WriteUnits,
		}
	}
	for _, k := range slices.Sorted(maps.Keys(o.Tags)) {
		in.Tags = append(in.Tags, types.Tag{Key: &k, Value: aws.String(o.Tags[k])})
	}
	_, err = t.client.CreateTable(ctx, in, withRetries)
	if _, exists := errors.AsType[*types.ResourceInUseException](err); err != nil && !exists {
		return nil, false, err
	}
	created = err == nil
	table, err = t.awaitActive(ctx, nil)
	return table, created, err
}

// awaitActive returns the table when it can be used. It asks for its state if that is nil.
func (t *tableAdmin) awaitActive(ctx context.Context, table *types.TableDescription) (*types.TableDescription, error) {
	for wait := firstPoll; ; wait = min(2*wait, longestPoll) {
		if table == nil {
			var err error
			table, err = t.describe(ctx)
			if err != nil && apiCode(err) != codeNotFound { // a table that was created a moment ago may be missing
				return nil, err
			}
		}
		switch {
		case table == nil || table.TableStatus == types.TableStatusCreating:
		case usable(table.TableStatus):
			return table, nil
		default:
			return nil, &TableError{t.name, t.notActive(table.TableStatus), nil}
		}
		table = nil
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			f := t.notActive(types.TableStatusCreating)
			return nil, &TableError{t.name, f, ctx.Err()}
		}
	}
}

// usable reports whether items of a table can be read and written in this state.
func usable(s types.TableStatus) bool {
	return s == types.TableStatusActive || s == types.TableStatusUpdating || s == ""
}

// failed returns the error of a call.
func (t *tableAdmin) failed(ctx context.Context, action string, err error) error {
	if e, ok := errors.AsType[*TableError](err); ok {
		return e
	}
	return &TableError{t.name, t.finding(ctx, action, err), err}
}

// differences compares an existing table with what is asked for. It returns nil if the table will
// do.
func (t *tableAdmin) differences(table *types.TableDescription, o *TableOptions) *Finding {
	if f := t.keySchema(table); f != nil {
		return f
	}
	var list []string
	read, write := provisioned(table)
	if o.WriteUnits > 0 && (read != o.ReadUnits || write != o.WriteUnits) {
		have := "on-demand capacity"
		if write > 0 {
			have = fmt.Sprintf("%d read and %d write units", read, write)
		}
		list = append(list, fmt.Sprintf("has %s, not %d read and %d write units", have, o.ReadUnits, o.WriteUnits))
	}
	if o.DeletionProtection && !aws.ToBool(table.DeletionProtectionEnabled) {
		list = append(list, "has no deletion protection")
	}
	if len(list) == 0 {
		return nil
	}
	return &Finding{
		Code:    CodeSettings,
		Message: "the table exists, but it " + joined(list),
		Advice:  "change it with \"aws dynamodb update-table\", or leave these settings out",
	}
}

// provisioned returns the capacity of a table; 0 and 0 if it has capacity on demand.
func provisioned(table *types.TableDescription) (read, write int64) {
	if b := table.BillingModeSummary; b != nil && b.BillingMode == types.BillingModePayPerRequest ||
		table.ProvisionedThroughput == nil {
		return 0, 0
	}
	return aws.ToInt64(table.ProvisionedThroughput.ReadCapacityUnits),
		aws.ToInt64(table.ProvisionedThroughput.WriteCapacityUnits)
}

// switchOnTTL has DynamoDB delete expired items. It returns nil if that is on.
func (t *tableAdmin) switchOnTTL(ctx context.Context) *Finding {
	attribute, err := t.ttl(ctx)
	switch {
	case err == nil && attribute == TTLAttribute:
		return nil
	case err == nil && attribute != "":
		return t.otherTTL(attribute, false)
	}
	_, err = t.client.UpdateTimeToLive(ctx, &dynamodb.UpdateTimeToLiveInput{
		TableName: &t.name,
		TimeToLiveSpecification: &types.TimeToLiveSpecification{
			AttributeName: aws.String(TTLAttribute),
			Enabled:       aws.Bool(true),
		},
	}, withRetries)
	if err == nil {
		return nil
	}
	if attribute, again := t.ttl(ctx); again == nil && attribute == TTLAttribute {
		return nil // another process was first
	}
	if apiCode(err) == codeUnknownOperation {
		return t.noTTL()
	}
	f := t.finding(ctx, "UpdateTimeToLive", err)
	if apiCode(err) == codeValidation { // it was changed a short time ago
		f.Message = "the deletion of expired items cannot be switched on now: " + apiMessage(err)
		f.Advice = "run this again in an hour"
	}
	return &f
}

// ttl returns the attribute by which DynamoDB deletes items; "" if it deletes none.
func (t *tableAdmin) ttl(ctx context.Context) (attribute string, err error) {
	out, err := t.client.DescribeTimeToLive(ctx, &dynamodb.DescribeTimeToLiveInput{TableName: &t.name}, withRetries)
	if err != nil || out.TimeToLiveDescription == nil {
		return "", err
	}
	d := out.TimeToLiveDescription
	if d.TimeToLiveStatus == types.TimeToLiveStatusEnabled || d.TimeToLiveStatus == types.TimeToLiveStatusEnabling {
		attribute = aws.ToString(d.AttributeName)
	}
	return attribute, nil
}
