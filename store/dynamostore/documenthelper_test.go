package dynamostore_test

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/cloudwatch"
	"github.com/aws/aws-sdk-go-v2/service/cloudwatch/schemas"
	cwtypes "github.com/aws/aws-sdk-go-v2/service/cloudwatch/types"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/aws-sdk-go-v2/service/sns"
	"github.com/aws/smithy-go/transport/http/protocol/awsquery"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/internal/awstest"
	"github.com/drawgate/drawgate/internal/storekey"
	"github.com/drawgate/drawgate/llm"
	"github.com/drawgate/drawgate/store"
	"github.com/drawgate/drawgate/store/dynamostore"
	cw "github.com/drawgate/drawgate/telemetry/cloudwatch"
)

// cloud is an AWS of one moto, for scenarios that run in bubbles. Requests leave a bubble to get
// there, and the clock of the bubble stands still meanwhile: in a scenario only pauses take time.
type cloud struct {
	url   string
	out   *outside
	admin *dynamodb.Client
	topic *topic
}

// quotas is the table of a cloud.
const quotas = "quotas"

func newCloud(t *testing.T) *cloud {
	t.Helper()
	c := &cloud{url: awstest.Moto(t).URL, out: newOutside(t)}
	c.admin = tableClient(c.url, c.out)
	if _, _, err := dynamostore.CreateTable(t.Context(), c.admin, quotas, nil); err != nil {
		t.Fatal(err)
	}
	c.topic = c.newTopic(t)
	return c
}

// topic is one of SNS, with a subscriber.
type topic struct {
	client *sns.Client
	arn    string
	got    chan notification // by the subscriber
}

// notification is what SNS posts to a subscriber. Message is an incident.
type notification struct{ Type, TopicArn, Subject, Message string }

func (c *cloud) newTopic(t *testing.T) *topic {
	t.Helper()
	p := &topic{got: make(chan notification, 10), client: sns.New(sns.Options{
		Region: "eu-central-1", BaseEndpoint: &c.url, HTTPClient: &http.Client{Transport: c.out}, Credentials: anybody,
	})}
	s := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		var n notification
		if body, err := io.ReadAll(r.Body); err != nil || json.Unmarshal(body, &n) != nil {
			t.Errorf("the subscriber got %s, %v", body, err)
		}
		p.got <- n
	}))
	t.Cleanup(s.Close)
	out, err := p.client.CreateTopic(t.Context(), &sns.CreateTopicInput{Name: aws.String("operators")})
	if err == nil {
		p.arn = *out.TopicArn
		_, err = p.client.Subscribe(t.Context(), &sns.SubscribeInput{
			TopicArn: &p.arn, Protocol: aws.String("http"),
			Endpoint: &s.URL,
		})
	}
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// anybody has the credentials that moto wants: some.
var anybody = credentials.NewStaticCredentialsProvider("test", "test", "")

// outside sends the requests of bubbles from goroutines that are in no bubble.
type outside struct{ senders chan sender }

type sender struct {
	requests chan *http.Request
	answers  chan answered
}

type answered struct {
	resp *http.Response
	err  error
}

func newOutside(t *testing.T) *outside {
	t.Helper()
	const most = 16 // requests at a time
	o := &outside{make(chan sender, most)}
	for range most {
		s := sender{make(chan *http.Request), make(chan answered)}
		o.senders <- s
		go s.run()
		t.Cleanup(func() { close(s.requests) })
	}
	return o
}

func (s sender) run() {
	for r := range s.requests {
		resp, err := direct.RoundTrip(r)
		if err == nil {
			var body []byte
			body, err = io.ReadAll(resp.Body)
			_ = resp.Body.Close()
			resp.Body = io.NopCloser(bytes.NewReader(body))
		}
		s.answers <- answered{resp, err}
	}
}

func (o *outside) RoundTrip(r *http.Request) (*http.Response, error) {
	far := r.Clone(context.Background()) // nobody outside may look at the context of a bubble
	if r.Body != nil {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return nil, err
		}
		far.Body = io.NopCloser(bytes.NewReader(body))
	}
	s := <-o.senders
	s.requests <- far
	a := <-s.answers
	o.senders <- s
	return a.resp, a.err
}

// wire is the connection of one process to DynamoDB. It keeps what was sent.
type wire struct {
	next http.RoundTripper

	mu      sync.Mutex
	trouble trouble       // guarded by mu; nil: none
	all     []sentRequest // guarded by mu
}

// trouble is what happens to a request; send sends it.
type trouble func(op string, r *http.Request, send func() (*http.Response, error)) (*http.Response, error)

type sentRequest struct {
	op, body string
	at       time.Time
	refusal  string // the body of an answer that is an error
}

func (w *wire) RoundTrip(r *http.Request) (*http.Response, error) {
	_, op, _ := strings.Cut(r.Header.Get("X-Amz-Target"), ".")
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	w.mu.Lock()
	i, happens := len(w.all), w.trouble
	w.all = append(w.all, sentRequest{op: op, body: string(body), at: time.Now()})
	w.mu.Unlock()
	send := func() (*http.Response, error) { return w.next.RoundTrip(r) }
	if happens == nil {
		happens = func(string, *http.Request, func() (*http.Response, error)) (*http.Response, error) { return send() }
	}
	resp, err := happens(op, r, send)
	if err == nil && resp.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(resp.Body)
		resp.Body = io.NopCloser(bytes.NewReader(text))
		w.mu.Lock()
		w.all[i].refusal = string(text)
		w.mu.Unlock()
	}
	return resp, err
}

// troubled sets what goes wrong; nil ends it.
func (w *wire) troubled(f trouble) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.trouble = f
}

// sent returns the requests of an operation, or all.
func (w *wire) sent(op string) (list []sentRequest) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, s := range w.all {
		if op == "" || s.op == op {
			list = append(list, s)
		}
	}
	return list
}

// instance is one Lambda instance: a process with its own store, limiter and connection.
type instance struct {
	t     *testing.T
	cloud *cloud
	wire  *wire
	store *dynamostore.Store
	lim   *drawgate.Limiter

	stopped atomic.Int64 // what its store's clock says, in Unix µs; 0: the bubble's

	mu    sync.Mutex
	calls []dynamostore.Call // guarded by mu
}

// instance starts one whose clock is the bubble's. Those of one prefix share their buckets.
func (c *cloud) instance(t *testing.T, prefix string) *instance {
	t.Helper()
	in := c.process(t, prefix)
	in.limit(in.store, nil)
	return in
}

// process is instance without a limiter.
func (c *cloud) process(t *testing.T, prefix string, also ...*dynamostore.Observer) *instance {
	t.Helper()
	in := &instance{t: t, cloud: c, wire: &wire{next: c.out}}
	in.store = dynamostore.NewWithClock(tableClient(c.url, in.wire), quotas, &dynamostore.Options{
		Prefix: prefix,
		Observer: &dynamostore.Observer{Called: func(call *dynamostore.Call) {
			in.mu.Lock()
			in.calls = append(in.calls, *call)
			in.mu.Unlock()
			for _, o := range also {
				o.Called(call)
			}
		}},
	}, func() int64 { return cmp.Or(in.stopped.Load(), time.Now().UnixMicro()) })
	t.Cleanup(func() { _ = in.store.Close() })
	return in
}

// limit gives the instance a limiter by the document's policy on a store: 5 requests and 250,000
// tokens a minute, 25 requests a day, one of which is never used. opts may be nil.
func (in *instance) limit(store store.Store, opts *drawgate.Options) {
	in.t.Helper()
	lim, err := drawgate.New(store, awstest.Gemini(), opts)
	if err != nil {
		in.t.Fatal(err)
	}
	in.t.Cleanup(func() { _ = lim.Close() })
	in.lim = lim
}

// The limits of the policy, in its order.
const (
	rpm = iota
	tpm
	rpd
)

const project = "project-1"

func tokensOf(n int64) store.Cost { return drawgate.Units(llm.UnitInputTokens, n) }

// acquire asks for one request with that many tokens.
func (in *instance) acquire(tokens int64) drawgate.Decision {
	in.t.Helper()
	d, err := in.lim.Allow(in.t.Context(), project, tokensOf(tokens))
	if err != nil {
		in.t.Error(err)
	}
	return d
}

// must is acquire, which succeeds.
func (in *instance) must(tokens int64) {
	in.t.Helper()
	if d := in.acquire(tokens); !d.Allowed || d.Fallback {
		in.t.Fatalf("%d tokens: %v, by the fallback: %v", tokens, d.Err(), d.Fallback)
	}
}

// left returns what remains of each limit.
func (in *instance) left() (left [3]int64) {
	in.t.Helper()
	st, err := in.lim.Status(in.t.Context(), project)
	if err != nil {
		in.t.Fatal(err)
	}
	for i := range left {
		left[i] = max(0, st.States[i].Max-st.States[i].Used)
	}
	return left
}

// conflicts returns how many conditional writes failed.
func (in *instance) conflicts() (n int) {
	in.mu.Lock()
	defer in.mu.Unlock()
	for i := range in.calls {
		n += in.calls[i].Conflicts
	}
	return n
}

// stop stops the clocks of stores, so that nothing is refilled in the pauses after conflicts.
func stop(list ...*instance) {
	for _, in := range list {
		in.stopped.Store(time.Now().UnixMicro())
	}
}

// row is what the table has of a bucket.
type row struct {
	tokens         map[string]int64
	refilled       time.Time
	ttl            time.Time
	writes, bucket int64 // how often it was written; a number of its own
}

// key returns the bucket's key in the table.
func (in *instance) key() map[string]types.AttributeValue {
	key, _ := storekey.Format(in.store.Prefix(), store.Key{Policy: in.lim.Plan().Name(), Name: project})
	return map[string]types.AttributeValue{dynamostore.KeyAttribute: &types.AttributeValueMemberS{Value: key}}
}

// row reads the bucket in the table; nil: there is none.
func (in *instance) row() *row {
	in.t.Helper()
	out, err := in.cloud.admin.GetItem(in.t.Context(), &dynamodb.GetItemInput{
		TableName: aws.String(quotas),
		Key:       in.key(), ConsistentRead: aws.Bool(true),
	})
	if err != nil {
		in.t.Fatal(err)
	}
	if len(out.Item) == 0 {
		return nil
	}
	number := func(v types.AttributeValue) int64 {
		n, err := strconv.ParseInt(v.(*types.AttributeValueMemberN).Value, 10, 64)
		if err != nil {
			in.t.Fatal(err)
		}
		return n
	}
	r := &row{
		tokens: map[string]int64{}, refilled: time.UnixMilli(number(out.Item["lastRefillTimestamp"])),
		ttl:    time.Unix(number(out.Item[dynamostore.TTLAttribute]), 0),
		writes: number(out.Item["writes"]), bucket: number(out.Item["life"]),
	}
	for name, v := range out.Item["tokens"].(*types.AttributeValueMemberM).Value {
		r.tokens[name] = number(v)
	}
	return r
}

// metricReader flushes metrics, and reads one back: names and values of dimensions follow.
type metricReader func(metric string, unit cwtypes.StandardUnit, dimensions ...string) cwtypes.Datapoint

// metrics returns metrics that are sent to the cloud's CloudWatch when they are flushed.
func (c *cloud) metrics(t *testing.T, namespace string) (*cw.Metrics, metricReader) {
	t.Helper()
	client := cloudwatch.New(cloudwatch.Options{
		Region: "eu-central-1", BaseEndpoint: &c.url, DisableRequestCompression: true,
		HTTPClient: &http.Client{Transport: c.out}, Credentials: anybody,
	}, func(o *cloudwatch.Options) {
		o.Protocol = awsquery.New(schemas.GraniteServiceVersion20100801) // the one that moto knows
	})
	m, err := cw.New(&cw.Options{Put: client, Namespace: namespace, Interval: -1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = m.Close(context.Background()) })
	began := time.Now()
	return m, func(metric string, unit cwtypes.StandardUnit, dimensions ...string) cwtypes.Datapoint {
		t.Helper()
		if err := m.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
		in := &cloudwatch.GetMetricStatisticsInput{
			Namespace: &namespace, MetricName: &metric, Unit: unit, Period: aws.Int32(24 * 3600),
			StartTime: aws.Time(began.Add(-time.Hour)), EndTime: aws.Time(time.Now().Add(time.Hour)),
			Statistics: []cwtypes.Statistic{
				cwtypes.StatisticSum, cwtypes.StatisticSampleCount,
				cwtypes.StatisticMinimum, cwtypes.StatisticMaximum,
			},
		}
		for i := 0; i < len(dimensions); i += 2 {
			in.Dimensions = append(in.Dimensions, cwtypes.Dimension{Name: &dimensions[i], Value: &dimensions[i+1]})
		}
		out, err := client.GetMetricStatistics(t.Context(), in)
		if err != nil {
			t.Fatal(err)
		}
		var all cwtypes.Datapoint
		for i, d := range out.Datapoints {
			if i == 0 {
				all = d
				continue
			}
			*all.Sum += *d.Sum
			*all.SampleCount += *d.SampleCount
			*all.Minimum, *all.Maximum = min(*all.Minimum, *d.Minimum), max(*all.Maximum, *d.Maximum)
		}
		for _, v := range []**float64{&all.Sum, &all.SampleCount, &all.Minimum, &all.Maximum} {
			*v = cmp.Or(*v, new(float64)) // CloudWatch has none
		}
		return all
	}
}

// together lets the first write of each of n instances wait until all of them are about to write.
func together(list ...*instance) {
	var ready sync.WaitGroup
	ready.Add(len(list))
	for _, in := range list {
		var once sync.Once
		in.wire.troubled(func(op string, _ *http.Request, send func() (*http.Response, error)) (*http.Response, error) {
			if op == "PutItem" {
				once.Do(func() {
					ready.Done()
					ready.Wait()
				})
			}
			return send()
		})
	}
}
