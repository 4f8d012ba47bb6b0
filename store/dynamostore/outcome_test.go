package dynamostore_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/internal/awstest"
	"github.com/drawgate/drawgate/store"
	"github.com/drawgate/drawgate/store/dynamostore"
)

func tenADay(t *testing.T) *store.Plan {
	t.Helper()
	return planOf(t, 10)
}

// planOf returns a plan of one rolling limit a day.
func planOf(t *testing.T, amount int64) *store.Plan {
	t.Helper()
	plan, err := drawgate.Policy{Name: "p", Limits: []drawgate.Limit{{
		Name: "limit", Kind: drawgate.Rolling,
		Amount: amount, Window: 24 * time.Hour,
	}}}.Compile()
	if err != nil {
		t.Fatal(err)
	}
	return plan.Plan
}

func used(t *testing.T, s store.Store, plan *store.Plan, name string) int64 {
	t.Helper()
	out := make([]store.State, 1)
	err := s.Peek(t.Context(), []store.BucketCost{{Key: store.Key{Policy: plan.Name(), Name: name}, Plan: plan}}, 0,
		out)
	if err := errors.Join(err, out[0].Fail); err != nil {
		t.Fatal(err)
	}
	return out[0].States[0].Used
}

// delayer keeps a write in the network: its sender sees a lost connection, and it arrives when the
// test wants it.
type delayer struct {
	next http.RoundTripper
	mu   sync.Mutex
	hold int // how many of the next writes are delayed
	held []*http.Request
	puts int

	onFirst func() // called when the first write is delayed; may be nil
}

func (d *delayer) RoundTrip(r *http.Request) (*http.Response, error) {
	if _, op, _ := strings.Cut(r.Header.Get("X-Amz-Target"), "."); !writes(op) {
		return d.next.RoundTrip(r)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.puts++
	if d.hold == 0 {
		return d.next.RoundTrip(r)
	}
	d.hold--
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	late := r.Clone(context.WithoutCancel(r.Context()))
	late.Body = io.NopCloser(bytes.NewReader(body))
	if d.held = append(d.held, late); len(d.held) == 1 && d.onFirst != nil {
		d.onFirst()
	}
	return nil, errors.New("write: connection reset by peer")
}

// arrive lets the delayed writes arrive, and returns their status codes.
func (d *delayer) arrive(t *testing.T) (codes []int) {
	t.Helper()
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, r := range d.held {
		resp, err := d.next.RoundTrip(r)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		codes = append(codes, resp.StatusCode)
	}
	d.held = nil
	return codes
}

// TestWritesThatArriveLate delays writes until others have been made, or refused, or until their
// callers have left and cancelled: none of them counts twice or is left behind.
//
// req: A12
func TestWritesThatArriveLate(t *testing.T) {
	t.Parallel()
	server := awstest.Dynalite(t)
	_, name := client(t, server)
	plan := tenADay(t)
	bucket := []store.BucketCost{{Key: store.Key{Policy: "p", Name: "k"}, Plan: plan, N: store.Amounts{6}}}
	open := func(t *testing.T) (*dynamostore.Store, *delayer) {
		t.Helper()
		d := &delayer{next: direct}
		s := dynamostore.NewWithError(through(server, d), name, &dynamostore.Options{Prefix: prefix()}, 0, 0)
		t.Cleanup(func() { _ = s.Close() })
		if u := used(t, s, plan, "k"); u != 0 {
			t.Fatal(u)
		}
		return s, d
	}
	t.Run("after its repetition", func(t *testing.T) {
		t.Parallel()
		s, d := open(t)
		d.hold = 2
		if got, err := takeOf(t.Context(), s, plan, "k", 6); err != nil || !got.Allowed || d.puts != 3 {
			t.Fatal(got, err, d.puts)
		}
		if codes := d.arrive(t); codes[0] != 400 || codes[1] != 400 {
			t.Errorf("the delayed writes were answered %d", codes)
		}
		if u := used(t, s, plan, "k"); u != 6 {
			t.Errorf("%d used, want 6", u)
		}
	})
	t.Run("after others have taken what it wanted", func(t *testing.T) {
		t.Parallel()
		s, d := open(t)
		d.hold = 1
		other := dynamostore.NewWithError(through(server, direct), name, &dynamostore.Options{Prefix: s.Prefix()}, 0, 0)
		defer func() { _ = other.Close() }()
		if _, err := takeOf(t.Context(), other, plan, "k", 3); err != nil {
			t.Fatal(err)
		}
		if got, err := takeOf(t.Context(), s, plan, "k", 6); err != nil || !got.Allowed {
			t.Fatal(got, err)
		}
		if codes := d.arrive(t); codes[0] != 400 {
			t.Errorf("the delayed write was answered %d", codes)
		}
		if u := used(t, s, plan, "k"); u != 9 {
			t.Errorf("%d used, want 9", u)
		}
	})
	t.Run("after its taker has cancelled", func(t *testing.T) {
		t.Parallel()
		s, d := open(t)
		ctx, cancel := context.WithCancel(t.Context())
		d.hold, d.onFirst = 5, cancel // as often as it is tried
		take := store.Take{ID: "id", Grant: 7, Hold: time.Hour, Buckets: bucket}
		out := make([]store.Verdict, 1)
		if err := errors.Join(s.Take(ctx, []store.Take{take}, out), out[0].Fail); !errors.Is(err,
			store.ErrUnknownOutcome) || errors.Is(err, store.ErrNothingDone) {
			t.Fatal(err)
		}
		sets := make([]store.Outcome, 1)
		if err := s.Settle(t.Context(), []store.Settlement{{Op: store.OpCancel, ID: "id", Grant: 7, Buckets: bucket}},
			sets); err != nil || sets[0].Err != nil || !sets[0].Gone {
			t.Fatal(err, sets)
		}
		for _, code := range d.arrive(t) {
			if code != 400 {
				t.Errorf("a delayed write was answered %d", code)
			}
		}
		if u := used(t, s, plan, "k"); u != 0 {
			t.Errorf("%d used, want 0", u)
		}
	})
}

// TestLostAnswer loses the answer to one write: it is found in the item, and not sent again.
//
// req: A12
func TestLostAnswer(t *testing.T) {
	t.Parallel()
	server := awstest.Dynalite(t)
	_, name := client(t, server)
	conn := &faulty{next: direct, lose: 1}
	s := dynamostore.NewWithError(through(server, conn), name, nil, 0, 0)
	defer func() { _ = s.Close() }()
	plan := tenADay(t)
	if got, err := takeOf(t.Context(), s, plan, "k", 6); err != nil || !got.Allowed || conn.lost.Load() != 1 {
		t.Fatal(got, err, conn.lost.Load())
	}
	if u := used(t, s, plan, "k"); u != 6 {
		t.Errorf("%d used, want 6", u)
	}
}

// TestCallersLeave: a caller whose time is over leaves when its job ends. Neither sees what the
// other one writes, which the race detector checks.
//
// req: A10
func TestCallersLeave(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		silent := roundTripper(func(r *http.Request) (*http.Response, error) {
			<-r.Context().Done()
			return nil, r.Context().Err()
		})
		s := dynamostore.NewWithClock(tableClient("http://dynamodb.test", silent), "quotas", nil,
			func() int64 { return time.Now().UnixMicro() })
		defer func() { _ = s.Close() }()
		plan := tenADay(t)
		for i := range 20 {
			ctx, cancel := context.WithTimeout(t.Context(), 40*time.Millisecond)
			d, err := takeOf(ctx, s, plan, strconv.Itoa(i), 1)
			cancel()
			if _, ok := errors.AsType[*store.Error](err); !ok || d.Allowed {
				t.Fatalf("allowed %v, %v", d.Allowed, err)
			}
			synctest.Wait()
		}
	})
}

// TestThrottled: five attempts, and then the caller is told.
//
// req: A10, A11
func TestThrottled(t *testing.T) {
	t.Parallel()
	server := awstest.Dynalite(t)
	_, name := client(t, server)
	for _, code := range []string{
		"ProvisionedThroughputExceededException", "ThrottlingException",
		"RequestLimitExceeded",
	} {
		conn := &faulty{next: direct}
		conn.fail = func(string) (int, string) { return 400, exception(code, "too much for SECRET") }
		s := dynamostore.New(through(server, conn), name, nil)
		_, err := takeOf(t.Context(), s, tenADay(t), "SECRET", 1)
		se, ok := errors.AsType[*store.Error](err)
		if !ok || se.Fault != store.FaultTransient || !errors.Is(err, dynamostore.ErrThrottled) ||
			!errors.Is(err, store.ErrNothingDone) || conn.calls.Load() != 5 {
			t.Errorf("%s: %d calls, %v", code, conn.calls.Load(), err)
		}
		if strings.Contains(err.Error(), "SECRET") {
			t.Errorf("the error shows the key: %v", err)
		}
		_ = s.Close()
	}
}

// TestErrorsSayWhatToDo asks what DynamoDB refuses.
func TestErrorsSayWhatToDo(t *testing.T) {
	t.Parallel()
	server := awstest.Dynalite(t)
	c, name := client(t, server)
	_, err := c.CreateTable(t.Context(), &dynamodb.CreateTableInput{
		TableName: aws.String("another"), BillingMode: types.BillingModePayPerRequest,
		KeySchema: []types.KeySchemaElement{{AttributeName: aws.String("id"), KeyType: types.KeyTypeHash}},
		AttributeDefinitions: []types.AttributeDefinition{{
			AttributeName: aws.String("id"),
			AttributeType: types.ScalarAttributeTypeS,
		}},
	})
	if err != nil {
		t.Fatal(err)
	}
	denied := func(string) (int, string) {
		return 400, exception("AccessDeniedException",
			"User: arn:aws:iam::1:user/u is not authorized to perform: dynamodb:GetItem on resource: arn")
	}
	for _, c := range []struct {
		table string
		fail  func(string) (int, string)
		fault store.Fault
		want  []string
	}{
		{"missing", nil, store.FaultConfiguration, []string{`no table "missing"`, "drawgate table create"}},
		{"another", nil, store.FaultConfiguration, []string{`table "another" has another key`, `"bucketId"`}},
		{name, denied, store.FaultConfiguration, []string{"dynamodb:GetItem", "drawgate table policy"}},
		{
			name, func(string) (int, string) { return 400, exception("ExpiredTokenException", "expired") },
			store.FaultConfiguration,
			[]string{"credentials"},
		},
		{
			name, func(string) (int, string) { return 503, exception("ServiceUnavailable", "later") },
			store.FaultTransient,
			[]string{"ServiceUnavailable"},
		},
	} {
		s := dynamostore.New(through(server, &faulty{next: direct, fail: c.fail}), c.table, nil)
		_, err := takeOf(t.Context(), s, tenADay(t), "SECRET", 1)
		se, ok := errors.AsType[*store.Error](err)
		if !ok || se.Fault != c.fault || strings.Contains(err.Error(), "SECRET") {
			t.Errorf("table %s: %v", c.table, err)
			continue
		}
		for _, text := range c.want {
			if !strings.Contains(err.Error(), text) {
				t.Errorf("%q is not in %q", text, err)
			}
		}
		_ = s.Close()
	}
}
