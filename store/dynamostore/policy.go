package dynamostore

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/drawgate/drawgate/internal/pattern"
	"github.com/drawgate/drawgate/store"
)

// PolicyOptions says what a [Policy] allows. The zero value allows what a [Store] needs.
type PolicyOptions struct {
	ReadOnly bool // only to look at buckets
	Create   bool // also [CreateTable]
}

// TableARN returns the name that policies use for a table. An empty region or account stands for
// any.
func TableARN(table, region, account string) string {
	partition := "aws"
	switch {
	case strings.HasPrefix(region, "cn-"):
		partition = "aws-cn"
	case strings.HasPrefix(region, "us-gov-"):
		partition = "aws-us-gov"
	}
	if region == "" {
		region = "*"
	}
	if account == "" {
		account = "*"
	}
	return fmt.Sprintf("arn:%s:dynamodb:%s:%s:table/%s", partition, region, account, table)
}

var tableARNs = pattern.New(`^arn:aws[a-z-]*:dynamodb:([a-z0-9-]+|\*):([0-9]{12}|\*):table/[A-Za-z0-9_.-]{3,255}$`)

// statement is a part of an IAM policy.
type statement struct {
	Sid      string
	Effect   string
	Action   []string
	Resource string
}

// Policy returns the smallest IAM policy, as JSON, that allows a [Store] to work on a table, and
// [CheckTable] to check it. arn is that of the table: see [TableARN]. The error is
// [store.ErrInvalid].
func Policy(arn string, o PolicyOptions) ([]byte, error) {
	if !tableARNs().MatchString(arn) {
		return nil, fmt.Errorf("%w: dynamostore: %q is not the ARN of a table: write arn:aws:dynamodb:REGION:ACCOUNT:table/NAME, where an account has 12 digits", store.ErrInvalid, arn)
	}
	allow := func(sid string, actions ...string) statement {
		for i := range actions {
			actions[i] = "dynamodb:" + actions[i]
		}
		return statement{sid, "Allow", actions, arn}
	}
	buckets := []string{"GetItem", "BatchGetItem", "UpdateItem", "PutItem", "DeleteItem"}
	if o.ReadOnly {
		buckets = buckets[:2]
	}
	list := []statement{
		allow("DrawgateBuckets", buckets...),
		allow("DrawgateListKeys", "Scan"),
		allow("DrawgateCheckTable", "DescribeTable", "DescribeTimeToLive"),
	}
	if o.Create {
		list = append(list, allow("DrawgateCreateTable", "CreateTable", "UpdateTimeToLive", "TagResource"))
	}
	text, err := json.MarshalIndent(struct {
		Version   string
		Statement []statement
	}{"2012-10-17", list}, "", "  ")
	return append(text, '\n'), err
}
