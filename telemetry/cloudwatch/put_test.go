package cloudwatch_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	sdk "github.com/aws/aws-sdk-go-v2/service/cloudwatch"
	"github.com/aws/aws-sdk-go-v2/service/cloudwatch/schemas"
	"github.com/aws/aws-sdk-go-v2/service/cloudwatch/types"
	"github.com/aws/smithy-go"
	"github.com/aws/smithy-go/transport/http/protocol/awsquery"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/internal/awstest"
	"github.com/drawgate/drawgate/store"
	"github.com/drawgate/drawgate/store/dynamostore"
	"github.com/drawgate/drawgate/telemetry/cloudwatch"
)

// client returns a client for moto, which knows the older protocol only.
func client(s *awstest.Server) *sdk.Client {
	return sdk.New(sdk.Options{
		Region: "us-east-1", BaseEndpoint: &s.URL, Credentials: credentials.NewStaticCredentialsProvider("test", "test",
			""), DisableRequestCompression: true,
	}, func(o *sdk.Options) { o.Protocol = awsquery.New(schemas.GraniteServiceVersion20100801) })
}

// statistics reads a metric back.
func statistics(t *testing.T, c *sdk.Client, metric string, unit types.StandardUnit,
	dimensions ...string,
) types.Datapoint {
	t.Helper()
	in := &sdk.GetMetricStatisticsInput{
		Namespace: aws.String("Drawgate"), MetricName: &metric, Unit: unit, Period: aws.Int32(24 * 3600),
		StartTime: aws.Time(time.Now().Add(-12 * time.Hour)), EndTime: aws.Time(time.Now().Add(12 * time.Hour)),
		Statistics: []types.Statistic{
			types.StatisticSum, types.StatisticSampleCount, types.StatisticMinimum,
			types.StatisticMaximum, types.StatisticAverage,
		},
	}
	for i := 0; i < len(dimensions); i += 2 {
		in.Dimensions = append(in.Dimensions, types.Dimension{Name: &dimensions[i], Value: &dimensions[i+1]})
	}
	out, err := c.GetMetricStatistics(t.Context(), in)
	if err != nil {
		t.Fatal(err)
	}
	if len(out.Datapoints) != 1 {
		t.Fatalf("%s %v has %d data points, want 1", metric, dimensions, len(out.Datapoints))
	}
	return out.Datapoints[0]
}

// What CloudWatch has in the end are the numbers of the takes.
//
// req: A10, A13, A14, A15
func TestPutMetricData(t *testing.T) {
	t.Parallel()
	c := client(awstest.Moto(t))
	m, err := cloudwatch.New(&cloudwatch.Options{Put: c, Interval: -1})
	if err != nil {
		t.Fatal(err)
	}
	everything(t, m)
	l := limiter(t, gemini("pro"), m.Observer())
	take(t, l, "user-17", 240_000)
	take(t, l, "user-17", 3_750)
	take(t, l, "user-17", 200_000) // refused
	for i := range 99 {
		m.Observer().Called(&drawgate.StoreCall{Op: "take", Took: time.Duration(i+1) * time.Millisecond})
	}
	m.Store().Called(&dynamostore.Call{Attempts: 6, Throttled: 5, Conflicts: 2})
	if err := m.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	is := func(name, metric string, got *float64, want float64) {
		t.Helper()
		if math.Abs(*got-want) > want/1000 {
			t.Errorf("%s of %s is %v, want %v", name, metric, *got, want)
		}
	}
	count, ms := types.StandardUnitCount, types.StandardUnitMilliseconds
	d := statistics(t, c, cloudwatch.TokensAcquired, count, "BucketType", "TPM", "Policy", "pro")
	is("sum", "TokensAcquired", d.Sum, 243_750)
	is("samples", "TokensAcquired", d.SampleCount, 2)
	d = statistics(t, c, cloudwatch.AcquisitionFailures, count, "BucketType", "TPM", "Policy", "pro")
	is("sum", "AcquisitionFailures", d.Sum, 1)
	d = statistics(t, c, cloudwatch.AcquisitionLatency, ms, "BucketType", "TPM", "Policy", "pro")
	is("samples", "AcquisitionLatency", d.SampleCount, 3)
	// By its type alone each number is there once more. AWS keeps the two apart; moto counts both
	// for fewer dimensions.
	d = statistics(t, c, cloudwatch.TokensAcquired, count, "BucketType", "TPM")
	is("sum", "TokensAcquired", d.Sum, 2*(243_750+100))
	d = statistics(t, c, cloudwatch.AcquisitionFailures, count, "BucketType", "TPM")
	is("sum", "AcquisitionFailures", d.Sum, 2)
	d = statistics(t, c, cloudwatch.TokensAvailable, count, "BucketType", "RPM", "Policy", "pro")
	is("minimum", "TokensAvailable", d.Minimum, 3)
	is("maximum", "TokensAvailable", d.Maximum, 4)
	d = statistics(t, c, cloudwatch.TokensAcquired, count, "BucketType", "burst", "Policy", "pro")
	is("sum", "TokensAcquired", d.Sum, 2)
	d = statistics(t, c, cloudwatch.StoreLatency, ms)
	is("samples", "StoreLatency", d.SampleCount, 100)
	is("sum", "StoreLatency", d.Sum, 99*100/2+4)
	is("minimum", "StoreLatency", d.Minimum, 1)
	d = statistics(t, c, cloudwatch.StoreRetries, count)
	is("samples", "StoreRetries", d.SampleCount, 2)
	is("maximum", "StoreRetries", d.Maximum, 5)
	for metric, want := range map[string]float64{
		cloudwatch.FallbackActivated: 1, cloudwatch.ConditionalWriteFailures: 3, cloudwatch.StoreThrottled: 6,
		cloudwatch.ProviderRefusals: 1,
	} {
		d = statistics(t, c, metric, count)
		is("sum", metric, d.Sum, want)
	}
	list, err := c.ListMetrics(t.Context(), &sdk.ListMetricsInput{Namespace: aws.String("Drawgate")})
	if err != nil {
		t.Fatal(err)
	}
	sets := map[string]bool{}
	for _, k := range list.Metrics {
		set := *k.MetricName
		for _, d := range k.Dimensions {
			set += " " + *d.Name + "=" + *d.Value
		}
		sets[set] = true
	}
	for _, want := range []string{
		cloudwatch.TokensAvailable + " BucketType=TPM Policy=pro", cloudwatch.TokensAvailable + " BucketType=TPM",
		cloudwatch.TokensAvailable + " BucketType=RPM",
		cloudwatch.TokensAvailable + " BucketType=RPD", cloudwatch.AcquisitionLatency, cloudwatch.StoreThrottled,
	} {
		if !sets[want] {
			t.Errorf("there is no metric %s: %v", want, sets)
		}
	}
	if len(sets) != 7+2*4*4+4*4 { // of the process; of four limits of two policies, and of their types
		t.Errorf("there are %d metrics: %v", len(sets), sets)
	}
	if err := m.Close(t.Context()); err != nil || m.Dropped() != 0 {
		t.Errorf("got %v and %d points dropped", err, m.Dropped())
	}
}

// putter is a CloudWatch that keeps the requests and answers as it is told.
type putter struct {
	mu       sync.Mutex
	requests []*sdk.PutMetricDataInput // guarded by mu
	answer   func(context.Context) error
	to       *sdk.Client // where requests go otherwise
}

func (p *putter) PutMetricData(ctx context.Context, in *sdk.PutMetricDataInput,
	_ ...func(*sdk.Options),
) (*sdk.PutMetricDataOutput, error) {
	p.mu.Lock()
	p.requests = append(p.requests, in)
	p.mu.Unlock()
	if p.answer != nil {
		return nil, p.answer(ctx)
	}
	return p.to.PutMetricData(ctx, in)
}

// Requests have at most 1,000 metrics, a megabyte in either of AWS's protocols, and 150 values of a
// metric, however much there is to say.
//
// req: A13
func TestRequestsAreBounded(t *testing.T) {
	t.Parallel()
	for name, protocol := range map[string]func(*sdk.Options){
		"CBOR":  func(*sdk.Options) {},
		"query": func(o *sdk.Options) { o.Protocol = awsquery.New(schemas.GraniteServiceVersion20100801) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bodies := &sizes{}
			c := sdk.New(sdk.Options{
				Region: "us-east-1", HTTPClient: bodies, Credentials: credentials.NewStaticCredentialsProvider("test",
					"test", ""), DisableRequestCompression: true,
			}, protocol)
			p := &putter{to: c}
			m, err := cloudwatch.New(&cloudwatch.Options{Put: p, Interval: -1})
			if err != nil {
				t.Fatal(err)
			}
			want := 0.0
			for i := range 1100 {
				policy := fmt.Sprintf("p%d", i) + strings.Repeat("&", 123)
				d, asked := take(t, limiter(t, gemini(policy), nil), "a", 1), takeOf(t, policy)
				for k := range 2 + i%150 { // latencies of many sizes
					m.Observer().Taken(&drawgate.Taken{
						Take: asked, Decision: &d,
						Took: time.Microsecond << (k % 27) * time.Duration(8+k/27) / 8,
					})
					want++
				}
			}
			if err := m.Close(t.Context()); err != nil {
				t.Fatal(err)
			}
			got := 0.0
			for _, r := range p.requests {
				got += check(t, r)
			}
			if len(p.requests) < 2 || got != want || m.Dropped() != 0 {
				t.Errorf("%d requests have %v latencies, want several with %v", len(p.requests), got, want)
			}
			if bodies.largest > 1_000_000 || bodies.largest < 100_000 {
				t.Errorf("the largest of %d requests has %d bytes", len(p.requests), bodies.largest)
			}
		})
	}
}

// check checks a request, and returns how many latencies of all takes it has.
func check(t *testing.T, r *sdk.PutMetricDataInput) (latencies float64) {
	t.Helper()
	if len(r.MetricData) > 1000 || *r.Namespace != "Drawgate" {
		t.Errorf("%d metrics of %s", len(r.MetricData), *r.Namespace)
	}
	for _, d := range r.MetricData {
		if len(d.Values) != len(d.Counts) || len(d.Values) > 150 {
			t.Errorf("%d values, %d counts", len(d.Values), len(d.Counts))
		}
		if *d.MetricName == cloudwatch.AcquisitionLatency && len(d.Dimensions) == 0 {
			for _, n := range d.Counts {
				latencies += n
			}
		}
	}
	return latencies
}

// sizes answers requests, and knows the largest one.
type sizes struct{ largest int64 }

func (s *sizes) Do(r *http.Request) (*http.Response, error) {
	s.largest = max(s.largest, r.ContentLength)
	header := http.Header{}
	body := "<PutMetricDataResponse><ResponseMetadata><RequestId>1</RequestId></ResponseMetadata></PutMetricDataResponse>"
	if r.Header.Get("Smithy-Protocol") != "" {
		header.Set("Smithy-Protocol", "rpc-v2-cbor")
		body = "\xa0" // an empty map
	}
	return &http.Response{
		StatusCode: http.StatusOK, Header: header, Body: io.NopCloser(strings.NewReader(body)),
		Request: r,
	}, nil
}

// takeOf returns a take that a decision of the policy [gemini] can be about.
func takeOf(t *testing.T, policy string) *store.Take {
	t.Helper()
	plan, err := gemini(policy).Compile()
	if err != nil {
		t.Fatal(err)
	}
	return &store.Take{Buckets: []store.BucketCost{{Plan: plan.Plan, N: store.Amounts{1, 1, 1, 1}}}}
}

// What CloudWatch refuses is dropped. Its message, which may repeat what was signed, is shown
// nowhere.
func TestRefusedRequest(t *testing.T) {
	t.Parallel()
	p := &putter{answer: func(context.Context) error {
		return fmt.Errorf("operation error: %w", &smithy.GenericAPIError{
			Code:    "AccessDenied",
			Message: "the canonical string is SECRET",
		})
	}}
	m, err := cloudwatch.New(&cloudwatch.Options{Put: p, Interval: -1})
	if err != nil {
		t.Fatal(err)
	}
	m.Observer().Called(&drawgate.StoreCall{Took: 1})
	err = m.Flush(t.Context())
	if err == nil || !strings.Contains(err.Error(), "AccessDenied") || strings.Contains(err.Error(), "SECRET") ||
		m.Dropped() != 1 {
		t.Errorf("got %v and %d points dropped", err, m.Dropped())
	}
	_ = m.Close(t.Context())
}

// Flush also waits for what was handed over before and is still being sent, such as the report that
// a call made, and says if that fails. Of what has ended before it says nothing.
func TestFlushWaitsForEarlierReports(t *testing.T) {
	t.Parallel()
	for _, refusal := range []error{nil, &smithy.GenericAPIError{Code: "AccessDenied"}} {
		synctest.Test(t, func(t *testing.T) {
			p := &putter{answer: func(context.Context) error {
				time.Sleep(4 * time.Second)
				return refusal
			}}
			m, err := cloudwatch.New(&cloudwatch.Options{Put: p, Interval: time.Minute, InCall: true})
			if err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Minute)
			m.Observer().Called(&drawgate.StoreCall{Took: 1}) // which reports
			start := time.Now()
			for i, wants := range []struct {
				took   time.Duration
				failed bool
			}{{4 * time.Second, refusal != nil}, {0, false}} {
				err := m.Flush(t.Context())
				if took := time.Since(start); took != wants.took || (err != nil) != wants.failed {
					t.Errorf("flush %d took %v and returned %v, want %v and failed %v", i, took, err, wants.took,
						wants.failed)
				}
				start = time.Now()
			}
			if err := m.Close(t.Context()); err != nil || len(p.requests) != 1 {
				t.Errorf("%d requests, %v", len(p.requests), err)
			}
		})
	}
}

// Close sends what waits, as long as its context lasts.
func TestCloseSendsTheRest(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := &putter{answer: func(ctx context.Context) error {
			select {
			case <-time.After(4 * time.Second):
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		}}
		m, err := cloudwatch.New(&cloudwatch.Options{Put: p, Interval: time.Second})
		if err != nil {
			t.Fatal(err)
		}
		for range 5 { // a request per second, each of which takes four
			m.Observer().Called(&drawgate.StoreCall{Took: 1})
			time.Sleep(time.Second)
		}
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		start := time.Now()
		if err := m.Close(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v", err)
		}
		if took := time.Since(start); took != 5*time.Second || m.Dropped() == 0 || m.Dropped() == 5 {
			t.Errorf("it took %v, and %d of 5 data points are dropped", took, m.Dropped())
		}
	})
}
