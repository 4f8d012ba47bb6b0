package snsnotify

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/aws/aws-sdk-go-v2/aws"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/sns"

	"github.com/drawgate/drawgate/internal/awsbody"
	"github.com/drawgate/drawgate/internal/pattern"
)

// Topic says where messages are sent.
type Topic struct {
	ARN      string // of a standard topic: a FIFO topic cannot send e-mails
	Region   string // "": the one in ARN
	Endpoint string // an http or https URL, such as that of a VPC endpoint; "": AWS's public one
}

var topicARNs = pattern.New(`^arn:aws[a-z-]{0,20}:sns:([a-z]{2}[a-z0-9-]{1,30}):[0-9]{12}:[A-Za-z0-9_-]{1,256}$`)

// RegionOf returns the region in the ARN of a standard topic. ok is false if it is not such an ARN.
func RegionOf(arn string) (region string, ok bool) {
	m := topicARNs().FindStringSubmatch(arn)
	if m == nil {
		return "", false
	}
	return m[1], true
}

// errARN does not show the text, which may be anything.
var errARN = errors.New("snsnotify: the topic must be the ARN of a standard SNS topic, such as arn:aws:sns:eu-central-1:123456789012:drawgate")

// transport returns what the SDK would use, with the authorities of AWS_CA_BUNDLE.
func transport(c *aws.Config) *http.Transport {
	if b, ok := c.HTTPClient.(*awshttp.BuildableClient); ok {
		return b.GetTransport()
	}
	return http.DefaultTransport.(*http.Transport).Clone()
}

// Open returns a Notifier that publishes to a topic with the credentials that AWS's own tools would
// use. opts may be nil. ctx bounds only the opening, which does not connect. It must be closed.
func Open(ctx context.Context, t Topic, opts *Options) (*Notifier, error) {
	region, ok := RegionOf(t.ARN)
	if !ok {
		return nil, errARN
	}
	c, err := config.LoadDefaultConfig(ctx, config.WithRegion(cmp.Or(t.Region, region)))
	if err != nil {
		return nil, fmt.Errorf("snsnotify: AWS's configuration: %w", err)
	}
	pool := transport(&c)
	pool.MaxIdleConns = 2
	client := sns.NewFromConfig(c, func(o *sns.Options) {
		o.HTTPClient = &http.Client{Transport: pool}
		o.APIOptions = append(o.APIOptions, awsbody.WithoutWriteTo)
		if t.Endpoint != "" {
			o.BaseEndpoint = aws.String(t.Endpoint)
		}
	})
	n, err := New(client, t.ARN, opts) //nolint:contextcheck // it lives longer than the opening
	if err != nil {
		return nil, err
	}
	n.closeIdle = pool.CloseIdleConnections
	return n, nil
}
