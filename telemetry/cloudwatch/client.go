package cloudwatch

import (
	"context"
	"fmt"

	"github.com/aws/aws-sdk-go-v2/config"
	sdk "github.com/aws/aws-sdk-go-v2/service/cloudwatch"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/internal/awsbody"
)

// Client returns a client of CloudWatch with the credentials that AWS's own tools would use. region
// is "" for the one of the environment or the shared configuration, endpoint "" for AWS itself. It
// does not connect. Without a region the error matches [drawgate.ErrInvalid].
func Client(ctx context.Context, region, endpoint string) (*sdk.Client, error) {
	var options []func(*config.LoadOptions) error
	if region != "" {
		options = append(options, config.WithRegion(region))
	}
	c, err := config.LoadDefaultConfig(ctx, options...)
	if err != nil {
		return nil, fmt.Errorf("cloudwatch: AWS's configuration: %w", err)
	}
	if c.Region == "" {
		return nil, fmt.Errorf("%w: cloudwatch: no region is known: set telemetry.cloudwatch.region, or AWS_REGION",
			drawgate.ErrInvalid)
	}
	return sdk.NewFromConfig(c, func(o *sdk.Options) {
		o.APIOptions = append(o.APIOptions, awsbody.WithoutWriteTo)
		if endpoint != "" {
			o.BaseEndpoint = &endpoint
		}
	}), nil
}
