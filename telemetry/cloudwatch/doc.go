// Package cloudwatch reports to Amazon CloudWatch what limiters, their store and calls to upstreams
// do.
//
// A [Metrics] gets its data from the same observers as package telemetry, and adds it up until the
// next report. It reports in one or both of two ways:
//
//   - [Options.EMF]: lines in CloudWatch's embedded metric format, usually on the standard output,
//     from where AWS Lambda and the agents of CloudWatch take them.
//   - [Options.Put]: PutMetricData, from a goroutine of its own.
//
// A Lambda function calls [Metrics.Flush] at the end of each invocation, because its process stands
// still afterwards. Everything else reports once per [Options.Interval].
//
// docs/metrics.md lists the metrics. Their dimensions are BucketType, which [BucketType] describes,
// and Policy. Keys and tenants appear nowhere.
package cloudwatch
