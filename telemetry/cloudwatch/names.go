package cloudwatch

import (
	"strings"

	"github.com/aws/aws-sdk-go-v2/service/cloudwatch/types"
)

// DefaultNamespace is the namespace of the metrics unless [Options.Namespace] says otherwise.
const DefaultNamespace = "Drawgate"

// The metrics. Latencies are in milliseconds, everything else is a count.
const (
	TokensAcquired           = "RateLimiterTokensAcquired"           // by BucketType: units that were granted
	TokensAvailable          = "RateLimiterTokensAvailable"          // by BucketType: units that are left after a decision
	AcquisitionLatency       = "RateLimiterAcquisitionLatency"       // of all takes, and by BucketType: time to decide
	AcquisitionFailures      = "RateLimiterAcquisitionFailures"      // by BucketType: takes that a limit of this type refused
	FallbackActivated        = "RateLimiterFallbackActivated"        // outages of the store during which this process began to decide by itself
	StoreLatency             = "RateLimiterStoreLatency"             // of the store's calls
	StoreRetries             = "RateLimiterStoreRetries"             // of one call of DynamoDB's store: attempts after the first
	ConditionalWriteFailures = "RateLimiterConditionalWriteFailures" // of DynamoDB: writes that another one was ahead of
	StoreThrottled           = "RateLimiterStoreThrottled"           // of DynamoDB: requests beyond its capacity
	ProviderRefusals         = "RateLimiterProviderRefusals"         // calls that an upstream refused for its quota although we had granted them
)

// The dimensions.
const (
	dimensionType   = "BucketType"
	dimensionPolicy = "Policy"
)

// other stands for policies and limits beyond the bounds.
const other = "other"

// unitOf returns a metric's unit.
func unitOf(metric string) types.StandardUnit {
	if strings.HasSuffix(metric, "Latency") {
		return types.StandardUnitMilliseconds
	}
	return types.StandardUnitCount
}

// dimensionValue makes a dimension's value of a name. CloudWatch accepts printable ASCII only, and
// at least one character that is not a space.
func dimensionValue(name string) string {
	value := strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' {
			return '?'
		}
		return r
	}, name)
	if strings.TrimSpace(value) == "" {
		return "?"
	}
	return value
}
