package dynamostore

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"time"

	awsmiddleware "github.com/aws/aws-sdk-go-v2/aws/middleware"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/smithy-go/middleware"
)

// read reads an item, consistently.
func (s *Store) read(ctx context.Context, key string) (*image, error) {
	sent := time.Now()
	out, err := s.client.GetItem(ctx, &dynamodb.GetItemInput{TableName: &s.table, Key: primary(key), ConsistentRead: &yes})
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

func primary(key string) map[string]types.AttributeValue {
	return map[string]types.AttributeValue{KeyAttribute: &types.AttributeValueMemberS{Value: key}}
}

// write replaces an item, if it is still as it was in the line's image. If it is not, and the
// service says how it is, that is the image that is returned with the error.
func (s *Store) write(ctx context.Context, l *line, a *attempt, in *dynamodb.PutItemInput) (*image, error) {
	in.TableName, in.ReturnValuesOnConditionCheckFailure = &s.table, types.ReturnValuesOnConditionCheckFailureAllOld
	condition := "attribute_not_exists(#key)"
	in.ExpressionAttributeNames = map[string]string{"#key": KeyAttribute}
	if l.image.found {
		condition = "#life = :life AND #writes = :writes"
		in.ExpressionAttributeNames = map[string]string{"#life": attrLife, "#writes": attrWrites}
		in.ExpressionAttributeValues = map[string]types.AttributeValue{":life": num(l.image.life), ":writes": num(l.image.writes)}
	}
	in.ConditionExpression = &condition
	sent := time.Now()
	out, err := s.client.PutItem(ctx, in)
	if err == nil {
		date, err := s.heard(sent, out.ResultMetadata, nil)
		a.late = err != nil || s.clock.late(a.at, date)
		return nil, nil //nolint:nilerr,nilnil // it was carried out; that its clock is wrong, the next read says
	}
	_, _ = s.heard(sent, middleware.Metadata{}, err)
	if failed := (*types.ConditionalCheckFailedException)(nil); errors.As(err, &failed) && len(failed.Item) > 0 {
		if old, e := readImage(failed.Item); e == nil {
			return old, err
		}
	}
	return nil, err
}

// heard sets the clock by the answer to a call, and returns the answer's Date.
func (s *Store) heard(sent time.Time, meta middleware.Metadata, err error) (time.Time, error) {
	received := time.Now()
	date, ok := awsmiddleware.GetServerTime(meta)
	if re := (*awshttp.ResponseError)(nil); !ok && errors.As(err, &re) && re.HTTPResponse() != nil {
		date, _ = http.ParseTime(strings.TrimSpace(re.HTTPResponse().Header.Get("Date"))) // zero: it has none
	}
	return date, s.clock.learn(sent, received, date)
}
