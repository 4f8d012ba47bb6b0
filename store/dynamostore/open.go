package dynamostore

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"github.com/drawgate/drawgate/internal/pattern"
	"github.com/drawgate/drawgate/store"
)

// Options holds the optional settings of a Store. The zero value is ready to use.
type Options struct {
	Prefix   string       // of every key; "" means "drawgate"; stores with different prefixes share nothing
	Logger   *slog.Logger // receives warnings; nil discards
	Observer *Observer    // is told of each call; nil: nobody
}

// Location says where a table is. It is what a URL names.
type Location struct {
	Table    string
	Region   string // "": what the environment or the shared configuration of AWS says
	Endpoint string // "": AWS itself, or what the environment says
}

// String returns the URL of the location.
func (l Location) String() string {
	var parameters []string
	if l.Region != "" {
		parameters = append(parameters, "region="+url.QueryEscape(l.Region))
	}
	if l.Endpoint != "" {
		parameters = append(parameters, "endpoint="+url.QueryEscape(l.Endpoint))
	}
	text := "dynamodb://" + l.Table
	if len(parameters) > 0 {
		text += "?" + strings.Join(parameters, "&")
	}
	return text
}

// URLError says what is wrong with a store URL. It shows none of the URL's values, and matches
// [store.ErrInvalid].
type URLError struct {
	Reason string // such as "names no table"; the subject is the URL
	Hint   string // what to write instead
}

// Error implements error.
func (e *URLError) Error() string {
	return fmt.Sprintf("%v: dynamostore: the URL %s; %s", store.ErrInvalid, e.Reason, e.Hint)
}

// Unwrap returns [store.ErrInvalid].
func (e *URLError) Unwrap() error { return store.ErrInvalid }

const exampleURL = "write dynamodb://TABLE?region=REGION, such as dynamodb://quotas?region=eu-central-1"

var (
	tableNames   = pattern.New(`^[A-Za-z0-9_.-]{3,255}$`)
	regionNames  = pattern.New(`^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$`) // it becomes a part of a host name
	harmlessName = pattern.New(`^[a-z_-]{1,20}$`)                      // a parameter's name that is no secret
)

// ParseURL reads dynamodb://TABLE?region=REGION&endpoint=URL. Both parameters may be missing.
// Credentials are never a part of it: the SDK looks for them where AWS's own tools do. The error is
// a [URLError].
func ParseURL(text string) (Location, error) {
	u, err := url.Parse(text)
	switch {
	case err != nil || u.Scheme != "dynamodb":
		return Location{}, &URLError{"is not of the form dynamodb://TABLE?region=REGION", exampleURL}
	case u.User != nil:
		return Location{}, &URLError{
			"contains credentials",
			"leave them out: they come from AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, from a profile, or from the role of the machine",
		}
	case u.Host == "":
		return Location{}, &URLError{"names no table", exampleURL}
	case u.Fragment != "" || strings.Trim(u.Path, "/") != "":
		return Location{}, &URLError{"has something after the table", exampleURL}
	}
	l := Location{Table: u.Host}
	if err := l.checkTable(); err != nil {
		return Location{}, err
	}
	query, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return Location{}, &URLError{"has parameters that cannot be read", exampleURL}
	}
	for name, values := range query {
		if err := l.parameter(name, values); err != nil {
			return Location{}, err
		}
	}
	return l, nil
}

// Check returns a [URLError] if the location is not valid.
func (l Location) Check() error {
	if err := l.checkTable(); err != nil {
		return err
	}
	if l.Region != "" && !regionNames().MatchString(l.Region) {
		return &URLError{"names a region that cannot exist", "write it as AWS does, such as region=eu-central-1"}
	}
	if l.Endpoint == "" {
		return nil
	}
	e, err := url.Parse(l.Endpoint)
	if err != nil || e.Hostname() == "" || e.Scheme != "http" && e.Scheme != "https" || e.User != nil ||
		e.RawQuery != "" || e.Fragment != "" {
		return &URLError{
			"has an endpoint that is not the http:// or https:// URL of a server",
			"such as endpoint=http://127.0.0.1:8000; leave it out for AWS itself",
		}
	}
	return nil
}

func (l Location) checkTable() error {
	if tableNames().MatchString(l.Table) {
		return nil
	}
	return &URLError{
		"has a table name that DynamoDB does not allow",
		"use 3 to 255 letters, digits, '_', '-' and '.', such as dynamodb://quotas",
	}
}

// parameter reads one of the URL's parameters.
func (l *Location) parameter(name string, values []string) error {
	var field *string
	switch name {
	case "region":
		field = &l.Region
	case "endpoint":
		field = &l.Endpoint
	default:
		shown := ""
		if harmlessName().MatchString(name) {
			shown = " " + name
		}
		return &URLError{"has an unknown parameter" + shown, "there are region and endpoint"}
	}
	if len(values) != 1 || values[0] == "" {
		return &URLError{"does not give its " + name + " exactly once", exampleURL}
	}
	*field = values[0]
	return l.Check()
}

// Client returns a client for a location: with the credentials that AWS's own tools would use, and
// without retries of its own. It does not connect.
func Client(ctx context.Context, l Location) (*dynamodb.Client, error) {
	if err := l.Check(); err != nil {
		return nil, err
	}
	options := []func(*config.LoadOptions) error{config.WithHTTPClient(httpClient())}
	if l.Region != "" {
		options = append(options, config.WithRegion(l.Region))
	}
	c, err := config.LoadDefaultConfig(ctx, options...)
	if err != nil {
		return nil, fmt.Errorf("%w: dynamostore: AWS's configuration (its environment variables and files) cannot be used: %w", store.ErrInvalid, err)
	}
	if c.Region == "" {
		return nil, fmt.Errorf("%w: dynamostore: no region is known: add ?region=REGION to the URL, or set AWS_REGION",
			store.ErrInvalid)
	}
	return dynamodb.NewFromConfig(c, func(o *dynamodb.Options) {
		o.Retryer = aws.NopRetryer{}
		if l.Endpoint != "" {
			o.BaseEndpoint = &l.Endpoint
		}
	}), nil
}

// httpClient returns a client that keeps its connections, and of which a large batch makes no more
// than a service accepts at once: other calls wait for one of them. It is of the SDK's
// own type, because only such a client obeys AWS_CA_BUNDLE.
func httpClient() *awshttp.BuildableClient {
	return awshttp.NewBuildableClient().WithTransportOptions(func(t *http.Transport) {
		t.MaxIdleConns, t.MaxIdleConnsPerHost, t.MaxConnsPerHost, t.IdleConnTimeout = 0, 256, 256, 5*time.Minute
	})
}

// Open returns a store on the table that a URL names: see [ParseURL]. opts may be nil.
//
// It does not connect, so that a process can start while the table is unavailable. Use [Store.Ping]
// to find out.
func Open(ctx context.Context, text string, opts *Options) (*Store, error) {
	l, err := ParseURL(text)
	if err != nil {
		return nil, err
	}
	c, err := Client(ctx, l)
	if err != nil {
		return nil, err
	}
	return New(c, l.Table, opts), nil
}
