package dynamostore_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/smithy-go/middleware"

	"github.com/drawgate/drawgate/internal/awsbody"
	"github.com/drawgate/drawgate/internal/awstest"
	"github.com/drawgate/drawgate/store"
	"github.com/drawgate/drawgate/store/dynamostore"
)

// tableClient returns a client of a server. transport may be nil.
func tableClient(url string, transport http.RoundTripper) *dynamodb.Client {
	o := dynamodb.Options{
		Region: "eu-central-1", Retryer: aws.NopRetryer{},
		APIOptions: []func(*middleware.Stack) error{awsbody.WithoutWriteTo},
		Credentials: aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
			return aws.Credentials{AccessKeyID: "AKIATEST", SecretAccessKey: "hunter2"}, nil
		}),
	}
	if url != "" {
		o.BaseEndpoint = &url
	}
	if transport != nil {
		o.HTTPClient = &http.Client{Transport: transport}
	}
	return dynamodb.New(o)
}

// codes returns the codes of findings; those of warnings are in brackets.
func codes(list []dynamostore.Finding) string {
	var all []string
	for _, f := range list {
		if f.Warning {
			f.Code = "(" + f.Code + ")"
		}
		all = append(all, f.Code)
	}
	return strings.Join(all, " ")
}

// A table is created once, however many processes create it, and is then as the store needs it.
//
// req: A7, A9
func TestCreateTable(t *testing.T) {
	t.Parallel()
	for name, start := range map[string]func(testing.TB) *awstest.Server{
		"dynalite": awstest.Dynalite,
		"moto":     awstest.Moto,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := tableClient(start(t).URL, nil)
			noTTL := ""
			if name == "dynalite" {
				noTTL = "(ttl)"
			}
			if got := codes(dynamostore.CheckTable(t.Context(), c, "quotas")); got != "no-table" {
				t.Errorf("before: %q", got)
			}
			created, findings, err := dynamostore.CreateTable(t.Context(), c, "quotas", nil)
			if err != nil || !created || codes(findings) != noTTL {
				t.Fatalf("created %t, %q, %v", created, codes(findings), err)
			}
			if got := dynamostore.CheckTable(t.Context(), c, "quotas"); codes(got) != noTTL {
				t.Errorf("after: %+v", got)
			}
			if scan, err := c.Scan(t.Context(), &dynamodb.ScanInput{TableName: aws.String("quotas")}); err != nil ||
				scan.Count != 0 {
				t.Errorf("the check left %+v, %v", scan, err)
			}
			created, findings, err = dynamostore.CreateTable(t.Context(), c, "quotas", &dynamostore.TableOptions{})
			if err != nil || created || codes(findings) != noTTL {
				t.Errorf("again: created %t, %q, %v", created, codes(findings), err)
			}

			if makers := race(t, c); makers != 1 {
				t.Errorf("%d of the processes that create a table at once say that they have, want 1", makers)
			}
		})
	}
}

// race creates a table several times at once, and returns how often it was created.
func race(t *testing.T, c *dynamodb.Client) (makers int) {
	t.Helper()
	var all sync.WaitGroup
	results := make(chan bool, 8)
	for range cap(results) {
		all.Go(func() {
			created, _, err := dynamostore.CreateTable(t.Context(), c, "raced", nil)
			if err != nil {
				t.Error(err)
			}
			results <- created
		})
	}
	all.Wait()
	close(results)
	for created := range results {
		if created {
			makers++
		}
	}
	return makers
}

// A table gets the capacity, the tags and the protection that were asked for. Later, only a table
// that has them will do.
func TestTableOptions(t *testing.T) {
	t.Parallel()
	c := tableClient(awstest.Moto(t).URL, nil)
	o := &dynamostore.TableOptions{
		ReadUnits: 5, WriteUnits: 7, Tags: map[string]string{"team": "search", "cost": "42"},
		DeletionProtection: true,
	}
	created, findings, err := dynamostore.CreateTable(t.Context(), c, "quotas", o)
	if err != nil || !created || codes(findings) != "(capacity)" ||
		!strings.Contains(findings[0].Message, "5 read and 7 write") {
		t.Fatalf("created %t, %+v, %v", created, findings, err)
	}
	d, err := c.DescribeTable(t.Context(), &dynamodb.DescribeTableInput{TableName: aws.String("quotas")})
	if err != nil || !*d.Table.DeletionProtectionEnabled || *d.Table.ProvisionedThroughput.WriteCapacityUnits != 7 {
		t.Fatalf("%+v, %v", d, err)
	}
	tags, err := c.ListTagsOfResource(t.Context(), &dynamodb.ListTagsOfResourceInput{ResourceArn: d.Table.TableArn})
	if err != nil || len(tags.Tags) != 2 || *tags.Tags[0].Key != "cost" || *tags.Tags[1].Value != "search" {
		t.Errorf("%+v, %v", tags, err)
	}
	if created, _, err := dynamostore.CreateTable(t.Context(), c, "quotas", o); created || err != nil {
		t.Errorf("again: %t, %v", created, err)
	}
	if created, _, err := dynamostore.CreateTable(t.Context(), c, "quotas", nil); created || err != nil {
		t.Errorf("whatever capacity it has: %t, %v", created, err)
	}
	differs(t, c, "quotas", &dynamostore.TableOptions{ReadUnits: 5, WriteUnits: 8}, dynamostore.CodeSettings,
		"has 5 read and 7 write units, not 5 read and 8 write units")

	if _, _, err := dynamostore.CreateTable(t.Context(), c, "plain", nil); err != nil {
		t.Fatal(err)
	}
	differs(t, c, "plain", o, dynamostore.CodeSettings,
		"has on-demand capacity, not 5 read and 7 write units and has no deletion protection")

	for _, o := range []dynamostore.TableOptions{{ReadUnits: 5}, {WriteUnits: 5}, {ReadUnits: -1, WriteUnits: -1}} {
		if _, _, err := dynamostore.CreateTable(t.Context(), c, "wrong", &o); !errors.Is(err, store.ErrInvalid) {
			t.Errorf("%+v: %v", o, err)
		}
	}
	if _, _, err := dynamostore.CreateTable(t.Context(), c, "a/b", nil); !errors.Is(err, store.ErrInvalid) {
		t.Errorf("a/b: %v", err)
	}
}

// differs checks that an existing table is refused.
func differs(t *testing.T, c *dynamodb.Client, table string, o *dynamostore.TableOptions, code, want string) {
	t.Helper()
	created, _, err := dynamostore.CreateTable(t.Context(), c, table, o)
	e, ok := errors.AsType[*dynamostore.TableError](err)
	if created || !ok || e.Code != code || !e.Differs() || !strings.Contains(err.Error(), want) {
		t.Errorf("%s: created %t, %v, want %s: %q", table, created, err, code, want)
	}
}

// A table with another key, or whose items are deleted by another attribute, is refused with what
// differs.
func TestAnotherTableIsRefused(t *testing.T) {
	t.Parallel()
	c := tableClient(awstest.Moto(t).URL, nil)
	const s, n = types.ScalarAttributeTypeS, types.ScalarAttributeTypeN
	const hash, sort = types.KeyTypeHash, types.KeyTypeRange
	for name, k := range map[string]struct {
		attributes []types.AttributeDefinition
		keys       []types.KeySchemaElement
		want       string
	}{
		"other-name": {
			[]types.AttributeDefinition{{AttributeName: aws.String("id"), AttributeType: s}},
			[]types.KeySchemaElement{{AttributeName: aws.String("id"), KeyType: hash}},
			"has the partition key id (type S), not just the partition key bucketId (type S)",
		},
		"other-type": {
			[]types.AttributeDefinition{{AttributeName: aws.String("bucketId"), AttributeType: n}},
			[]types.KeySchemaElement{{AttributeName: aws.String("bucketId"), KeyType: hash}},
			"has the partition key bucketId (type N)",
		},
		"sort-key": {
			[]types.AttributeDefinition{
				{AttributeName: aws.String("bucketId"), AttributeType: s},
				{AttributeName: aws.String("at"), AttributeType: n},
			},
			[]types.KeySchemaElement{
				{AttributeName: aws.String("bucketId"), KeyType: hash},
				{AttributeName: aws.String("at"), KeyType: sort},
			},
			"has the partition key bucketId (type S) and the sort key at (type N), not just",
		},
	} {
		if _, err := c.CreateTable(t.Context(), &dynamodb.CreateTableInput{
			TableName: &name, AttributeDefinitions: k.attributes, KeySchema: k.keys,
			BillingMode: types.BillingModePayPerRequest,
		}); err != nil {
			t.Fatal(err)
		}
		differs(t, c, name, nil, dynamostore.CodeKeySchema, k.want)
		if got := dynamostore.CheckTable(t.Context(), c, name); codes(got) != "key-schema" ||
			!strings.Contains(got[0].Message, k.want) {
			t.Errorf("%s: %+v", name, got)
		}
	}

	if _, _, err := dynamostore.CreateTable(t.Context(), c, "other-ttl", nil); err != nil {
		t.Fatal(err)
	}
	ttl := func(attribute string, on bool) {
		if _, err := c.UpdateTimeToLive(t.Context(), &dynamodb.UpdateTimeToLiveInput{
			TableName:               aws.String("other-ttl"),
			TimeToLiveSpecification: &types.TimeToLiveSpecification{AttributeName: &attribute, Enabled: &on},
		}); err != nil {
			t.Fatal(err)
		}
	}
	ttl("ttl", false)
	if got := dynamostore.CheckTable(t.Context(), c, "other-ttl"); codes(got) != "(ttl)" ||
		!strings.Contains(got[0].Message, "time to live is off") {
		t.Errorf("%+v", got)
	}
	ttl("expires", true)
	if got := dynamostore.CheckTable(t.Context(), c, "other-ttl"); codes(got) != "(ttl)" ||
		!strings.Contains(got[0].Message, "on for the attribute expires, not ttl") {
		t.Errorf("%+v", got)
	}
	differs(t, c, "other-ttl", nil, dynamostore.CodeTTL, "on for the attribute expires, not ttl")
	ttl("expires", false)
	if created, findings, err := dynamostore.CreateTable(t.Context(), c, "other-ttl", nil); created ||
		len(findings) > 0 || err != nil {
		t.Errorf("created %t, %+v, %v", created, findings, err)
	}
	if got := dynamostore.CheckTable(t.Context(), c, "other-ttl"); len(got) > 0 {
		t.Errorf("%+v", got)
	}
}

// answers is a DynamoDB that answers each operation with what its function says. It records the
// operations.
type answers struct {
	of  map[string]func() (status int, body string)
	mu  sync.Mutex
	ops []string // guarded by mu
}

func (a *answers) RoundTrip(r *http.Request) (*http.Response, error) {
	_, op, _ := strings.Cut(r.Header.Get("X-Amz-Target"), ".")
	a.mu.Lock()
	a.ops = append(a.ops, op)
	a.mu.Unlock()
	f, ok := a.of[op]
	if !ok {
		f = a.of["*"]
	}
	status, body := f()
	return &http.Response{
		StatusCode: status, Header: http.Header{"Content-Type": {"application/x-amz-json-1.0"}},
		Body: io.NopCloser(bytes.NewBufferString(body)), Request: r,
	}, nil
}

// says returns an answer that is always the same.
func says(status int, body string) func() (int, string) {
	return func() (int, string) { return status, body }
}

// refuses returns the body of an error as AWS documents it.
func refuses(code, message string) func() (int, string) {
	status := 400
	if code == "InternalServerError" {
		status = 500
	}
	field := "message"
	if strings.HasPrefix(code, "AccessDenied") {
		field = "Message"
	}
	return says(status, fmt.Sprintf(`{"__type":"com.amazonaws.dynamodb.v20120810#%s","%s":%q}`, code, field, message))
}

// described is a table in a status, with further fields.
func described(status, more string) func() (int, string) {
	return says(200,
		`{"Table":{"TableName":"quotas","TableStatus":"`+status+`","KeySchema":[{"AttributeName":"bucketId","KeyType":"HASH"}],`+
			`"AttributeDefinitions":[{"AttributeName":"bucketId","AttributeType":"S"}]`+more+`}}`)
}

const ttlOn = `{"TimeToLiveDescription":{"AttributeName":"ttl","TimeToLiveStatus":"ENABLED"}}`

// denied is what IAM answers.
func denied(action string) func() (int, string) {
	return refuses("AccessDeniedException",
		"User: arn:aws:iam::123456789012:user/ann is not authorized to perform: dynamodb:"+action+
			" on resource: arn:aws:dynamodb:eu-central-1:123456789012:table/quotas because no identity-based policy allows the dynamodb:"+action+" action")
}

// Whatever AWS answers, the check names the cause and what to do about it.
func TestFindings(t *testing.T) {
	t.Parallel()
	refused := refuses("ConditionalCheckFailedException", "The conditional request failed")
	type of = map[string]func() (int, string)
	for name, c := range map[string]struct {
		of    of
		codes string
		parts []string // of the first finding
	}{
		"all is well": {of{}, "", nil},
		"no table": {
			of{"*": refuses("ResourceNotFoundException", "Requested resource not found: Table: quotas not found")},
			"no-table",
			[]string{
				"no table quotas in region eu-central-1 at https://dynamodb.eu-central-1.amazonaws.com",
				"drawgate table create", "?region=REGION",
			},
		},
		"may not describe": {
			of{"DescribeTable": denied("DescribeTable")},
			"(permission)",
			[]string{
				"arn:aws:iam::123456789012:user/ann may not call dynamodb:DescribeTable",
				"the table itself is not checked", "drawgate table policy",
			},
		},
		"may not describe TTL": {
			of{"DescribeTimeToLive": denied("DescribeTimeToLive")},
			"(permission)",
			[]string{"dynamodb:DescribeTimeToLive", "not known whether expired"},
		},
		"may not describe another table": {
			of{"DescribeTable": denied("DescribeTable"), "GetItem": refuses("ValidationException",
				"The provided key element does not match the schema")}, "(permission) key-schema", nil,
		},
		"a call that is not valid": {
			of{"GetItem": refuses("ValidationException",
				"One or more parameter values were invalid")},
			"failed",
			[]string{"dynamodb:GetItem failed: ValidationException: One or more"},
		},
		"may only look": {
			of{
				"UpdateItem": denied("UpdateItem"), "PutItem": denied("PutItem"),
				"DeleteItem": denied("DeleteItem"),
			},
			"permission permission permission",
			[]string{"may not call dynamodb:UpdateItem"},
		},
		"may not list": {
			of{"Scan": denied("Scan")},
			"(permission)",
			[]string{"dynamodb:Scan, so keys cannot be listed"},
		},
		"may nothing": {
			of{"*": denied("Anything")},
			"(permission) (permission) permission permission permission permission (permission)", nil,
		},
		"an explicit denial": {
			of{"GetItem": refuses("AccessDeniedException",
				"User: arn:aws:sts::1:assumed-role/r/s is not authorized to perform: dynamodb:GetItem on resource: x with an explicit deny in a service control policy")},
			"permission",
			[]string{"arn:aws:sts::1:assumed-role/r/s may not call dynamodb:GetItem, because a policy denies it explicitly", "remove the denial"},
		},
		"no key of KMS": {
			of{"GetItem": refuses("AccessDeniedException",
				"User: arn:aws:iam::1:user/u is not authorized to perform: kms:Decrypt on resource: arn:aws:kms:x")},
			"permission",
			[]string{"may not call kms:Decrypt"},
		},
		"another text of a denial": {
			of{"GetItem": refuses("AccessDeniedException", "no")},
			"permission",
			[]string{"these credentials may not call dynamodb:GetItem"},
		},
		"an expired token": {
			of{"*": refuses("ExpiredTokenException",
				"The security token included in the request is expired")},
			"expired-credentials",
			[]string{"have expired", "aws sso login"},
		},
		"an unknown token": {
			of{"*": refuses("UnrecognizedClientException",
				"The security token included in the request is invalid.")},
			"bad-credentials",
			[]string{"does not know these credentials (UnrecognizedClientException)", "AWS_PROFILE"},
		},
		"a wrong secret": {
			of{"*": refuses("InvalidSignatureException",
				"The request signature we calculated does not match hunter2")},
			"bad-credentials",
			[]string{"the secret key does not belong"},
		},
		"a wrong clock": {
			of{"*": refuses("InvalidSignatureException",
				"Signature expired: 20260101T000000Z is now earlier than 20260102T000000Z")},
			"bad-credentials",
			[]string{"clock", "set the clock"},
		},
		"no capacity left": {
			of{"GetItem": refuses("ProvisionedThroughputExceededException",
				"The level of configured provisioned throughput for the table was exceeded")},
			"(capacity)",
			[]string{"dynamodb:GetItem is throttled"},
		},
		"AWS fails": {
			of{"*": refuses("InternalServerError", "The request could not be processed")},
			"failed",
			[]string{"dynamodb:DescribeTable failed: InternalServerError: The request"},
		},
		"being deleted": {
			of{"DescribeTable": described("DELETING", "")},
			"not-active",
			[]string{"status is DELETING", "wait until it is gone"},
		},
		"being created": {
			of{"DescribeTable": described("CREATING", "")},
			"not-active",
			[]string{"wait until it is active"},
		},
		"without its key of KMS": {
			of{"DescribeTable": described("INACCESSIBLE_ENCRYPTION_CREDENTIALS", "")},
			"not-active",
			[]string{"KMS"},
		},
		"archived":      {of{"DescribeTable": described("ARCHIVED", "")}, "not-active", []string{"backup"}},
		"being updated": {of{"DescribeTable": described("UPDATING", "")}, "", nil},
		"little capacity": {
			of{"DescribeTable": described("ACTIVE",
				`,"ProvisionedThroughput":{"ReadCapacityUnits":1,"WriteCapacityUnits":1}`)},
			"(capacity)",
			[]string{"1 read and 1 write units a second"},
		},
		"enough capacity": {of{"DescribeTable": described("ACTIVE",
			`,"ProvisionedThroughput":{"ReadCapacityUnits":10,"WriteCapacityUnits":10}`)}, "", nil},
		"on demand": {
			of{"DescribeTable": described("ACTIVE",
				`,"BillingModeSummary":{"BillingMode":"PAY_PER_REQUEST"},"ProvisionedThroughput":{"ReadCapacityUnits":0,"WriteCapacityUnits":0},"OnDemandThroughput":{"MaxReadRequestUnits":-1,"MaxWriteRequestUnits":-1}`)},
			"", nil,
		},
		"a small maximum": {
			of{"DescribeTable": described("ACTIVE",
				`,"BillingModeSummary":{"BillingMode":"PAY_PER_REQUEST"},"OnDemandThroughput":{"MaxWriteRequestUnits":2}`)}, "(capacity)", []string{"maximum of 2 write units"},
		},
		"replicas": {
			of{"DescribeTable": described("ACTIVE",
				`,"Replicas":[{"RegionName":"us-east-1"}]`)},
			"(replicas)",
			[]string{"holds only if all processes use one region"},
		},
		"strongly consistent regions": {of{"DescribeTable": described("ACTIVE",
			`,"MultiRegionConsistency":"STRONG","Replicas":[{"RegionName":"us-east-1"}]`)}, "", nil},
		"TTL on its way": {of{"DescribeTimeToLive": says(200,
			`{"TimeToLiveDescription":{"AttributeName":"ttl","TimeToLiveStatus":"ENABLING"}}`)}, "", nil},
		"TTL on its way out": {
			of{"DescribeTimeToLive": says(200,
				`{"TimeToLiveDescription":{"AttributeName":"ttl","TimeToLiveStatus":"DISABLING"}}`)},
			"(ttl)",
			[]string{"time to live is off"},
		},
		"a server without TTL": {
			of{"DescribeTimeToLive": refuses("UnknownOperationException", "")},
			"(ttl)",
			[]string{"this server has no time to live", "stand-in for tests"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { // a failure of AWS is tried again after a while
				a := &answers{of: of{
					"DescribeTable": described("ACTIVE", ""), "DescribeTimeToLive": says(200, ttlOn),
					"GetItem": says(200, "{}"), "Scan": says(200, "{}"), "*": refused,
				}}
				if f := c.of["*"]; f != nil {
					a.of = of{"*": f}
				}
				maps.Copy(a.of, c.of)
				got := dynamostore.CheckTable(t.Context(), tableClient("", a), "quotas")
				if codes(got) != c.codes {
					t.Errorf("got %q, want %q: %+v", codes(got), c.codes, got)
				}
				for _, f := range got {
					text := f.Message + "; " + f.Advice
					if f.Message == "" || f.Advice == "" || strings.Contains(text, "hunter2") {
						t.Errorf("%+v", f)
					}
				}
				for _, part := range c.parts {
					if len(got) == 0 || !strings.Contains(got[0].Message+"; "+got[0].Advice, part) {
						t.Errorf("got %+v, want %q", got, part)
					}
				}
			})
		})
	}
}

// Without credentials, or without a server, the check says so.
func TestNothingToAsk(t *testing.T) {
	t.Parallel()
	c := tableClient("http://127.0.0.1:1", nil)
	got := dynamostore.CheckTable(t.Context(), c, "quotas")
	if codes(got) != "unreachable" || !strings.Contains(got[0].Message,
		"no answer from region eu-central-1 at http://127.0.0.1:1") ||
		!strings.Contains(got[0].Advice, "start the server") {
		t.Errorf("%+v", got)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if got := codes(dynamostore.CheckTable(ctx, c, "quotas")); got != "unreachable" {
		t.Errorf("cancelled: %q", got)
	}
	for text, want := range map[string]string{
		"no EC2 IMDS role found":                        "no-credentials",
		"the SSO session has expired or is invalid":     "expired-credentials",
		"ExpiredToken: The security token has expired.": "expired-credentials",
	} {
		o := c.Options()
		o.Credentials = aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials,
			error,
		) {
			return aws.Credentials{}, errors.New(text)
		})
		bare := dynamodb.New(o)
		got := dynamostore.CheckTable(t.Context(), bare, "quotas")
		if codes(got) != want {
			t.Errorf("%s: %+v", text, got)
		}
		_, _, err := dynamostore.CreateTable(t.Context(), bare, "quotas", nil)
		if e, ok := errors.AsType[*dynamostore.TableError](err); !ok || e.Code != want || e.Err == nil ||
			!strings.Contains(err.Error(), "dynamostore: table quotas: ") {
			t.Errorf("%s: %v", text, err)
		}
	}
}

// A table that is being created is waited for, as long as the context allows. A table that is
// deleted meanwhile ends the wait.
func TestCreateTableWaits(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		states  []string // that DescribeTable answers, the last one for ever
		created bool
		code    string // of the error
	}{
		"new":                  {[]string{"", "", "CREATING", "CREATING", "ACTIVE"}, true, ""},
		"another one's":        {[]string{"CREATING", "CREATING", "ACTIVE"}, false, ""},
		"for ever":             {[]string{"", "CREATING"}, true, "not-active"},
		"deleted":              {[]string{"", "CREATING", "DELETING"}, true, "not-active"},
		"deleted at the start": {[]string{"DELETING"}, false, "not-active"},
		"never there":          {[]string{""}, true, "not-active"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				states := slices.Clone(c.states)
				a := &answers{of: map[string]func() (int, string){
					"DescribeTable": func() (int, string) {
						state := states[0]
						if len(states) > 1 {
							states = states[1:]
						}
						if state == "" {
							return refuses("ResourceNotFoundException", "Requested resource not found")()
						}
						return described(state, "")()
					},
					"CreateTable":        says(200, `{"TableDescription":{"TableStatus":"CREATING"}}`),
					"DescribeTimeToLive": says(200, `{"TimeToLiveDescription":{"TimeToLiveStatus":"DISABLED"}}`),
					"UpdateTimeToLive":   says(200, `{}`),
				}}
				ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
				defer cancel()
				created, findings, err := dynamostore.CreateTable(ctx, tableClient("", a), "quotas", nil)
				if created != c.created || len(findings) > 0 {
					t.Errorf("created %t, want %t; %+v", created, c.created, findings)
				}
				if e, ok := errors.AsType[*dynamostore.TableError](err); ok != (c.code != "") ||
					ok && (e.Code != c.code || e.Differs()) {
					t.Errorf("got %v, want %q", err, c.code)
				}
				if c.code == "" && a.ops[len(a.ops)-1] != "UpdateTimeToLive" {
					t.Errorf("the last of %v does not switch on the time to live", a.ops)
				}
			})
		})
	}
}

// What keeps the time to live off is an error, except that another process was faster.
func TestTimeToLiveCannotBeSwitchedOn(t *testing.T) {
	t.Parallel()
	off := says(200, `{"TimeToLiveDescription":{"TimeToLiveStatus":"DISABLED"}}`)
	for name, c := range map[string]struct {
		update func() (int, string)
		later  func() (int, string) // what DescribeTimeToLive answers then
		want   string
	}{
		"changed before": {
			refuses("ValidationException",
				"Time to live has been modified multiple times within a fixed interval"), off,
			"cannot be switched on now: Time to live has been modified",
		},
		"denied": {denied("UpdateTimeToLive"), off, "may not call dynamodb:UpdateTimeToLive"},
		"another process was first": {
			refuses("ValidationException", "TimeToLive is already enabled"), says(200, ttlOn),
			"",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			described := described("ACTIVE", "")
			ttl := off
			a := &answers{of: map[string]func() (int, string){
				"DescribeTable":      described,
				"DescribeTimeToLive": func() (int, string) { return ttl() },
				"UpdateTimeToLive":   func() (int, string) { ttl = c.later; return c.update() },
			}}
			_, _, err := dynamostore.CreateTable(t.Context(), tableClient("", a), "quotas", nil)
			if (err != nil) != (c.want != "") || err != nil && !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
}
