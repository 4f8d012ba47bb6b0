package cloudwatch

import (
	"strings"

	"github.com/aws/aws-sdk-go-v2/service/cloudwatch/types"
)

// DefaultNamespace is the namespace of the metrics unless [Options.Namespace] says otherwise.
const DefaultNamespace = "Drawgate"

// The metrics. Latencies are in milliseconds, everything else is a count. docs/metrics.md lists
// them with these comments.
const (
	// Units that were granted.
	// Statistic: Sum.
	TokensAcquired = "RateLimiterTokensAcquired"

	// Units left of the limit after each decision, for a take of its priority. Without the store
	// nobody knows: decisions of a fallback report none.
	// Statistic: Minimum.
	TokensAvailable = "RateLimiterTokensAvailable"

	// Takes that this limit refused. If two limits refuse one take it counts for both; if it is
	// refused because the store is unavailable, a bucket is paused or others are ahead in the
	// queue, it counts for none.
	// Statistic: Sum.
	AcquisitionFailures = "RateLimiterAcquisitionFailures"

	// Time to decide a take, including the store, not the wait in the queue. By type: takes that a
	// decision was made about.
	// Statistic: p50, p99, Maximum.
	AcquisitionLatency = "RateLimiterAcquisitionLatency"

	// 1 each time this process began to decide by itself because the store was unavailable, however
	// many takes it then decides.
	// Statistic: Sum.
	FallbackActivated = "RateLimiterFallbackActivated"

	// Time of a store call as limiters see it, as `drawgate_store_duration_seconds`.
	// Statistic: p50, p99.
	StoreLatency = "RateLimiterStoreLatency"

	// DynamoDB: attempts of one call of the store beyond the first. 0 is a call that succeeded at
	// once.
	// Statistic: Sum, Average, p99.
	StoreRetries = "RateLimiterStoreRetries"

	// DynamoDB: writes that were repeated because another process wrote first. The rate per call is
	// this metric's Sum divided by the SampleCount of `RateLimiterStoreRetries`.
	// Statistic: Sum.
	ConditionalWriteFailures = "RateLimiterConditionalWriteFailures"

	// DynamoDB: requests that it refused because the table or the account was over its capacity.
	// Statistic: Sum.
	StoreThrottled = "RateLimiterStoreThrottled"

	// Calls that an upstream refused for its quota although they were granted here, as
	// `drawgate_incidents_total`.
	// Statistic: Sum.
	ProviderRefusals = "RateLimiterProviderRefusals"
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
