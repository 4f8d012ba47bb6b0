package awsbody_test

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/smithy-go/middleware"

	"github.com/drawgate/drawgate/internal/awsbody"
)

// late answers before it has looked for the body's end, as net/http does on a busy machine.
type late struct {
	sent string
	end  func() error
}

func (l *late) Do(r *http.Request) (*http.Response, error) {
	all := make([]byte, r.ContentLength)
	if _, err := io.ReadFull(r.Body, all); err != nil {
		return nil, err
	}
	l.sent = string(all)
	l.end = func() error { _, err := io.Copy(io.Discard, r.Body); return err }
	header := http.Header{"Content-Type": {"application/x-amz-json-1.0"}}
	return &http.Response{
		StatusCode: http.StatusOK, Header: header, Body: io.NopCloser(strings.NewReader("{}")),
		Request: r,
	}, nil
}

// A body that the SDK has closed ends, and does not fail, for who looks for its end afterwards.
func TestAClosedBodyEnds(t *testing.T) {
	t.Parallel()
	call := func(options ...func(*middleware.Stack) error) *late {
		l := &late{}
		c := dynamodb.New(dynamodb.Options{
			Region: "eu-central-1", HTTPClient: l, APIOptions: options, Retryer: aws.NopRetryer{},
			Credentials: aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
				return aws.Credentials{AccessKeyID: "AKIATEST", SecretAccessKey: "secret"}, nil
			}),
		})
		if _, err := c.DescribeTable(t.Context(),
			&dynamodb.DescribeTableInput{TableName: aws.String("buckets")}); err != nil {
			t.Fatal(err)
		}
		return l
	}
	l := call(awsbody.WithoutWriteTo)
	if want := `{"TableName":"buckets"}`; l.sent != want {
		t.Errorf("sent %s, want %s", l.sent, want)
	}
	if err := l.end(); err != nil {
		t.Errorf("a closed body: %v", err)
	}
	if err := call().end(); err == nil {
		t.Error("the SDK's own bodies end too: this package can go")
	}
}
