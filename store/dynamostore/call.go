package dynamostore

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"time"

	awsmiddleware "github.com/aws/aws-sdk-go-v2/aws/middleware"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/smithy-go/middleware"

	"github.com/drawgate/drawgate/internal/awsbody"
)

// read reads an item, consistently.
func (s *Store) read(ctx context.Context, key string) (*image, error) {
	sent := s.clock.real()
	out, err := s.client.GetItem(ctx, &dynamodb.GetItemInput{
		TableName: &s.table, Key: primary(key),
		ConsistentRead: &yes,
	}, plainBody)
	if err != nil {
		_, _ = s.heard(sent, middleware.Metadata{}, err) // the call's own error is the one to report
		return nil, err
	}
	if _, err := s.heard(sent, out.ResultMetadata, nil); err != nil {
		return nil, err
	}
	return readImage(out.Item)
}

var yes = true

// plainBody keeps a call that was carried out from failing: see [awsbody.WithoutWriteTo].
func plainBody(o *dynamodb.Options) {
	o.APIOptions = append(slices.Clip(o.APIOptions), awsbody.WithoutWriteTo)
}

func primary(key string) map[string]types.AttributeValue {
	return map[string]types.AttributeValue{KeyAttribute: &types.AttributeValueMemberS{Value: key}}
}

// write writes an attempt, if the item is still as the attempt needs it, and returns the new image.
// If it is not, and the service says how it is, that is the image that is returned with the error.
func (s *Store) write(ctx context.Context, l *line, a, first *attempt) (*image, error) {
	sent := s.clock.real()
	var meta middleware.Metadata
	var err error
	written := a.image
	if a.form == replace {
		var out *dynamodb.PutItemOutput
		if out, err = s.client.PutItem(ctx, s.replacing(l, a), plainBody); err == nil {
			meta = out.ResultMetadata
		}
	} else {
		var out *dynamodb.UpdateItemOutput
		if out, err = s.client.UpdateItem(ctx, s.updating(l, a, first), plainBody); err == nil {
			meta = out.ResultMetadata
			written, err = readImage(out.Attributes)
			if err != nil { // it was carried out; the next read says what is wrong
				written, err = nil, nil
			}
		}
	}
	if err == nil {
		date, err := s.heard(sent, meta, nil)
		a.late = err != nil || s.clock.late(a.at, date)
		return written, nil //nolint:nilerr // it was carried out; that its clock is wrong, the next read says
	}
	_, _ = s.heard(sent, middleware.Metadata{}, err)
	if failed := (*types.ConditionalCheckFailedException)(nil); errors.As(err, &failed) && len(failed.Item) > 0 {
		if old, e := readImage(failed.Item); e == nil {
			return old, err
		}
	}
	return nil, err
}

// replacing returns a write of the whole item, if it is as it was in the line's image.
func (s *Store) replacing(l *line, a *attempt) *dynamodb.PutItemInput {
	in := &dynamodb.PutItemInput{
		TableName: &s.table, Item: a.image.item(l.key, l.parts, a.rec, a.plan, a.at.early),
		ReturnValuesOnConditionCheckFailure: types.ReturnValuesOnConditionCheckFailureAllOld,
	}
	condition := "attribute_not_exists(#key)"
	in.ExpressionAttributeNames = map[string]string{"#key": KeyAttribute}
	if l.image.found {
		condition = "#life = :life AND #writes = :writes"
		in.ExpressionAttributeNames = map[string]string{"#life": attrLife, "#writes": attrWrites}
		in.ExpressionAttributeValues = map[string]types.AttributeValue{
			":life":   num(l.image.life),
			":writes": num(l.image.writes),
		}
	}
	in.ConditionExpression = &condition
	return in
}

// updating returns a write of a part of an item with entries.
func (s *Store) updating(l *line, a, first *attempt) *dynamodb.UpdateItemInput {
	var u *update
	switch a.form {
	case add:
		u = s.appending(l, a, first)
	case shut:
		u = s.closing(l, a, first)
	case fold, foldLast:
		u = s.folding(l, a, first, a.form == foldLast)
	case replace: // is no update
	}
	return u.input()
}

// heard sets the clock by the answer to a call, and returns the answer's Date.
func (s *Store) heard(sent reading, meta middleware.Metadata, err error) (time.Time, error) {
	received := s.clock.real()
	date, ok := awsmiddleware.GetServerTime(meta)
	if re := (*awshttp.ResponseError)(nil); !ok && errors.As(err, &re) && re.HTTPResponse() != nil {
		date, _ = http.ParseTime(strings.TrimSpace(re.HTTPResponse().Header.Get("Date"))) // zero: it has none
	}
	return date, s.clock.learn(sent, received, date)
}
