package dynamostore_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/internal/awstest"
	"github.com/drawgate/drawgate/store"
	"github.com/drawgate/drawgate/store/dynamostore"
)

// faulty is a connection to DynamoDB on which things go wrong.
type faulty struct {
	next http.RoundTripper

	lose     float64 // the part of the answers to writes that is lost
	throttle float64 // the part of the calls that is throttled
	fail     func(op string) (status int, body string)

	calls, lost, throttled atomic.Int64
}

func (f *faulty) RoundTrip(r *http.Request) (*http.Response, error) {
	f.calls.Add(1)
	if f.fail != nil {
		_, op, _ := strings.Cut(r.Header.Get("X-Amz-Target"), ".")
		if status, body := f.fail(op); status != 0 {
			return answer(r, status, body), nil
		}
	}
	if rand.Float64() < f.throttle {
		f.throttled.Add(1)
		return answer(r, http.StatusBadRequest, exception("ProvisionedThroughputExceededException", "too much")), nil
	}
	resp, err := f.next.RoundTrip(r)
	if err == nil && isWrite(r) && rand.Float64() < f.lose {
		f.lost.Add(1)
		_, _ = io.Copy(io.Discard, resp.Body)
		_ = resp.Body.Close()
		return nil, errors.New("read: connection reset by peer")
	}
	return resp, err
}

// writes reports whether an operation of DynamoDB changes an item.
func writes(op string) bool { return op == "PutItem" || op == "UpdateItem" }

// isWrite reports whether a request changes an item.
func isWrite(r *http.Request) bool {
	_, op, _ := strings.Cut(r.Header.Get("X-Amz-Target"), ".")
	return writes(op)
}

func exception(name, message string) string {
	return `{"__type":"com.amazonaws.dynamodb.v20120810#` + name + `","message":"` + message + `"}`
}

func answer(r *http.Request, status int, body string) *http.Response {
	return &http.Response{
		StatusCode: status, Status: http.StatusText(status), Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: http.Header{"Content-Type": {"application/x-amz-json-1.0"}},
		Body:   io.NopCloser(bytes.NewReader([]byte(body))), ContentLength: int64(len(body)), Request: r,
	}
}

// direct connects to the stand-ins as the store does to DynamoDB: with a bound, because none of
// them accepts a thousand connections at once.
var direct http.RoundTripper = &http.Transport{
	MaxIdleConnsPerHost: 64, MaxConnsPerHost: 64,
	IdleConnTimeout: time.Minute,
}

// through returns a client of a server that uses a transport.
func through(server *awstest.Server, t http.RoundTripper) *dynamodb.Client {
	return dynamodb.New(dynamodb.Options{
		Region: "us-east-1", BaseEndpoint: &server.URL, Retryer: aws.NopRetryer{},
		HTTPClient:  &http.Client{Transport: t},
		Credentials: credentials.NewStaticCredentialsProvider("test", "test", ""),
	})
}

// grant is one take that was allowed, at an instant of a clock that all share.
type grant struct{ at, n int64 }

// TestNeverOver asks from several processes for one bucket while answers are lost, calls are
// throttled and clocks are wrong, and adds up what was granted: by each limit, and in the item.
//
// req: A1, A3, A8, A12
func TestNeverOver(t *testing.T) {
	t.Parallel()
	server := awstest.Dynalite(t)
	_, name := client(t, server)
	const amount, window = 40, 2 * time.Second
	for kind, limit := range map[string]drawgate.Limit{
		"rolling": {Name: "limit", Kind: drawgate.Rolling, Amount: amount, Window: window},
		"exact":   {Name: "limit", Kind: drawgate.Rolling, Amount: amount, Window: window, Precision: drawgate.Exact},
		"bucket":  {Name: "limit", Kind: drawgate.Bucket, Amount: amount, Window: window, Burst: amount / 2},
		"minute":  {Name: "limit", Kind: drawgate.Calendar, Amount: amount, Every: drawgate.Minute},
	} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			all := drawgate.Limit{
				Name: "all", Unit: "units", Kind: drawgate.Rolling, Amount: 1_000_000,
				Window: 24 * time.Hour,
			}
			plan, err := drawgate.Policy{Name: "p", Limits: []drawgate.Limit{limit, all}}.Compile()
			if err != nil {
				t.Fatal(err)
			}
			const processes, callers, takes, blur = 4, 4, 25, 300 * time.Millisecond
			opts := &dynamostore.Options{Prefix: prefix()}
			var mu sync.Mutex
			var granted []grant
			var sum, unknown int64
			var wg sync.WaitGroup
			for p := range processes {
				conn := &faulty{next: direct, lose: 0.05, throttle: 0.2}
				behind := blur * time.Duration(p) / (processes - 1)
				s := dynamostore.NewWithError(through(server, conn), name, opts, behind, blur)
				if p%2 == 0 {
					s.Contest()
				}
				t.Cleanup(func() { _ = s.Close() })
				for range callers {
					wg.Go(func() {
						for range takes {
							n := 1 + rand.Int64N(3)
							d, err := takeOf(t.Context(), s, plan.Plan, "k", n, n)
							if errors.Is(err, store.ErrNothingDone) {
								continue // throttled five times in a row
							}
							if errors.Is(err, store.ErrStoreUnavailable) { // after an answer that was lost
								mu.Lock()
								unknown += n
								mu.Unlock()
								continue
							}
							if err != nil {
								t.Error(err)
								return
							}
							if d.Allowed {
								mu.Lock()
								granted = append(granted, grant{d.At().Add(behind).UnixMicro(), n})
								sum += n
								mu.Unlock()
							} else {
								time.Sleep(min(d.RetryAfter, window/10)) // so that time passes
							}
						}
					})
				}
			}
			wg.Wait()
			check(t, granted, limit)
			s := dynamostore.NewWithError(through(server, direct), name, opts, 0, blur)
			st := make([]store.State, 1)
			bucket := store.BucketCost{Key: store.Key{Policy: "p", Name: "k"}, Plan: plan.Plan}
			if err := s.Peek(t.Context(), []store.BucketCost{bucket}, 0, st); err != nil || st[0].Fail != nil {
				t.Fatal(err, st[0].Fail)
			}
			if used := st[0].States[1].Used; used < max(sum, amount) || used > sum+unknown {
				t.Errorf("%d units were granted, and of %d it is unknown; %d are in the item: each must count exactly once", sum, unknown, used)
			}
		})
	}
}

func takeOf(ctx context.Context, s store.Store, plan *store.Plan, name string, n ...int64) (store.Verdict, error) {
	out := make([]store.Verdict, 1)
	b := store.BucketCost{Key: store.Key{Policy: plan.Name(), Name: name}, Plan: plan}
	copy(b.N[:], n)
	err := s.Take(ctx, []store.Take{{Buckets: []store.BucketCost{b}}}, out)
	return out[0], errors.Join(err, out[0].Fail)
}

// check adds up what was granted in each window that a limit knows.
func check(t *testing.T, granted []grant, l drawgate.Limit) {
	t.Helper()
	slices.SortFunc(granted, func(a, b grant) int { return int(a.at - b.at) })
	for i := range granted {
		sum := int64(0)
		for _, g := range granted[i:] {
			apart := time.Duration(g.at-granted[i].at) * time.Microsecond
			most := l.Amount
			switch l.Kind {
			case drawgate.Rolling:
				if apart >= l.Window {
					continue
				}
			case drawgate.Bucket:
				most = l.Burst + 1 + int64(float64(l.Amount)*apart.Seconds()/l.Window.Seconds())
			default:
				if g.at/60_000_000 != granted[i].at/60_000_000 {
					continue
				}
			}
			if sum += g.n; sum > most {
				t.Fatalf("%d units within %v, at most %d are allowed", sum, apart, most)
			}
		}
	}
}
