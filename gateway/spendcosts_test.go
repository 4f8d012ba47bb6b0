package gateway_test

import (
	"bytes"
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/redis/rueidis"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/internal/awstest"
	"github.com/drawgate/drawgate/internal/needs"
	"github.com/drawgate/drawgate/internal/redistest"
	"github.com/drawgate/drawgate/store/dynamostore"
	"github.com/drawgate/drawgate/store/guard"
	"github.com/drawgate/drawgate/store/redisstore"
)

// costedCalls is how many calls each figure is the mean of. If an item on DynamoDB grew with each,
// it would soon be larger than 1 KiB, which is what a unit writes.
const costedCalls = 200

// costOf makes calls, one after the other, through a gateway on a store, and returns what count
// counted meanwhile, for each call.
func costOf(t *testing.T, st drawgate.Store, spending bool, count func() map[string]float64) map[string]float64 {
	t.Helper()
	g := guard.New(st, &guard.Options{Instances: 1, Timeout: time.Minute})
	s := newSetup(func(s *setup) {
		s.store, s.config.Prices = g.Full(), priced()
		s.options.Base = answered{}
		s.unspent = !spending
	})
	b := &bench{T: t}
	b.build(s, "http://provider.test")
	call := func() {
		if got := b.do(b.raw(t.Context(), http.MethodPost, "/openai/v1/chat/completions", chat("gpt-4o", "Hello!"),
			"Authorization: Bearer "+alice)); got.status != http.StatusOK {
			t.Fatal(got.status, got.body)
		}
	}
	call() // the meter is noted, and scripts are loaded
	b.settled()
	before := count()
	for range costedCalls {
		call()
	}
	b.settled()
	each := map[string]float64{}
	for name, n := range count() {
		if n -= before[name]; n > 0 {
			each[name] = n / costedCalls
		}
	}
	return each
}

// TestWhatSpendCosts: on one Redis server what a call spends is counted in the script calls that
// its limits need; on DynamoDB it is an item more, which is looked at and written. The figures are
// those of docs/spend.md.
func TestWhatSpendCosts(t *testing.T) {
	needs.NoRace(t) // calls one after the other
	t.Parallel()
	t.Run("redis", func(t *testing.T) {
		t.Parallel()
		server := redistest.Start(t)
		scripts := func() map[string]float64 {
			return map[string]float64{"script calls": scriptCalls(t, server)}
		}
		cost := func(spending bool) float64 {
			st, err := redisstore.Open(server.URL(), nil)
			if err != nil {
				t.Fatal(err)
			}
			return costOf(t, st, spending, scripts)["script calls"]
		}
		with, without := cost(true), cost(false)
		t.Logf("script calls for each call of the gateway: %.2f with spend, %.2f without", with, without)
		if with > without+0.1 || without < 1 {
			t.Errorf("%.2f script calls with spend, %.2f without: want as many", with, without)
		}
	})
	t.Run("dynamodb", func(t *testing.T) {
		t.Parallel()
		counted := &requests{of: map[string]float64{}}
		c := dynamodb.New(dynamodb.Options{
			BaseEndpoint: aws.String(awstest.Dynalite(t).URL), Region: "local",
			Credentials: credentials.NewStaticCredentialsProvider("test", "test", ""),
			HTTPClient:  &http.Client{Transport: counted},
		})
		cost := func(table string, spending bool) map[string]float64 {
			if _, _, err := dynamostore.CreateTable(t.Context(), c, table, nil); err != nil {
				t.Fatal(err)
			}
			return costOf(t, dynamostore.New(c, table, nil), spending, counted.counts)
		}
		with, without := cost("with", true), cost("without", false)
		t.Logf("for each call of the gateway, with spend: %v; without: %v", with, without)
		if more := with["units of writes"] - without["units of writes"]; more < 1 || more > 4 || without["writes"] < 1 {
			t.Errorf("%v with spend, %v without: want a few small writes more", with, without)
		}
	})
}

var scriptStats = regexp.MustCompile(`(?m)^cmdstat_(?:evalsha|evalsha_ro|fcall|fcall_ro):calls=(\d+)`)

// scriptCalls returns how many scripts a server has run.
func scriptCalls(t *testing.T, server *redistest.Server) float64 {
	t.Helper()
	opts, err := rueidis.ParseURL(server.URL())
	if err != nil {
		t.Fatal(err)
	}
	opts.DisableCache = true
	c, err := rueidis.NewClient(opts)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	text, err := c.Do(t.Context(), c.B().Info().Section("commandstats").Build()).ToString()
	if err != nil {
		t.Fatal(err)
	}
	sum := 0.0
	for _, m := range scriptStats.FindAllStringSubmatch(text, -1) {
		n, _ := strconv.ParseFloat(m[1], 64)
		sum += n
	}
	return sum
}

// requests counts what goes to DynamoDB, and what it consumes there.
type requests struct {
	mu sync.Mutex
	of map[string]float64 // guarded by mu
}

// RoundTrip implements http.RoundTripper. It has each answer say what the request consumed.
func (q *requests) RoundTrip(r *http.Request) (*http.Response, error) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	_, op, _ := strings.Cut(r.Header.Get("X-Amz-Target"), ".")
	if strings.HasSuffix(op, "Item") {
		body = append([]byte(`{"ReturnConsumedCapacity":"TOTAL",`), body[1:]...)
	}
	r = r.Clone(r.Context())
	r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	resp, err := http.DefaultTransport.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	answer, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, err
	}
	_ = resp.Body.Close()
	resp.Body = io.NopCloser(bytes.NewReader(answer))
	var consumed struct {
		ConsumedCapacity struct{ CapacityUnits float64 }
	}
	_ = json.Unmarshal(answer, &consumed) // an error has none
	kind := "writes"
	if op == "GetItem" {
		kind = "reads"
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.of[kind]++
	q.of["units of "+kind] += consumed.ConsumedCapacity.CapacityUnits
	return resp, nil
}

func (q *requests) counts() map[string]float64 {
	q.mu.Lock()
	defer q.mu.Unlock()
	return maps.Clone(q.of)
}

// answered is a provider whose every answer says what it used.
type answered struct{}

// RoundTrip implements http.RoundTripper.
func (answered) RoundTrip(r *http.Request) (*http.Response, error) {
	const text = `{"choices":[{"message":{"role":"assistant","content":"yes"},"finish_reason":"stop"}],` +
		`"usage":{"prompt_tokens":9,"completion_tokens":1,"total_tokens":10}}`
	return &http.Response{
		StatusCode: http.StatusOK, Request: r, Header: http.Header{"Content-Type": {"application/json"}},
		Body: io.NopCloser(strings.NewReader(text)), ContentLength: int64(len(text)),
	}, nil
}
