package grpclimit_test

import (
	"context"
	"errors"
	"net/netip"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	echo "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/grpclimit"
	"github.com/drawgate/drawgate/httplimit"
	"github.com/drawgate/drawgate/store"
	"github.com/drawgate/drawgate/store/memstore"
)

func TestRefusalHasRetryInfoAndQuotaFailure(t *testing.T) {
	t.Parallel()
	c, _ := serve(t, limit(t, limiter(t, drawgate.PerHour("hour", 2)), nil), &server{})
	for range 2 {
		if err := call(t, c); err != nil {
			t.Fatal(err)
		}
	}
	var header metadata.MD
	err := call(t, c, grpc.Header(&header))
	if status.Code(err) != codes.ResourceExhausted {
		t.Fatalf("the third of two: %v", err)
	}
	wantsAnHour(t, err, 2)
	if after, _ := strconv.Atoi(one(header, grpclimit.MetadataRetry)); after < 3500 || after > 3600 {
		t.Errorf("metadata %v, want retry-after of nearly an hour", header)
	}
}

// wantsAnHour checks the details of a refusal by a limit per hour that has just been used up.
func wantsAnHour(t *testing.T, err error, amount int64) {
	t.Helper()
	var retry *errdetails.RetryInfo
	var quota *errdetails.QuotaFailure
	for _, d := range status.Convert(err).Details() {
		switch d := d.(type) {
		case *errdetails.RetryInfo:
			retry = d
		case *errdetails.QuotaFailure:
			quota = d
		}
	}
	if wait := retry.GetRetryDelay().AsDuration(); wait <= 59*time.Minute || wait > time.Hour {
		t.Errorf("retry after %v, want nearly an hour", wait)
	}
	v := quota.GetViolations()
	if len(v) != 1 || v[0].GetSubject() != "policy:hour" || v[0].GetQuotaId() != "hour" ||
		v[0].GetQuotaValue() != amount {
		t.Errorf("quota failure %v", quota)
	}
}

func TestStreamIsRefusedBeforeItsHandler(t *testing.T) {
	t.Parallel()
	var ran atomic.Bool
	c, _ := serve(t, limit(t, limiter(t, drawgate.PerHour("hour", 1)), nil),
		&server{stream: func(echo.TestService_FullDuplexCallServer) error {
			ran.Store(true)
			return nil
		}})
	if err := call(t, c); err != nil {
		t.Fatal(err)
	}
	s, err := c.FullDuplexCall(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	_, err = s.Recv()
	if status.Code(err) != codes.ResourceExhausted || ran.Load() {
		t.Fatalf("a stream after the only call of an hour: %v; its handler ran: %v", err, ran.Load())
	}
	wantsAnHour(t, err, 1)
	header, _ := s.Header()
	if after, _ := strconv.Atoi(one(header, grpclimit.MetadataRetry)); after < 3500 || after > 3600 {
		t.Errorf("metadata %v, want retry-after of nearly an hour", header)
	}
}

func TestMetadataDescribeTheTightestLimit(t *testing.T) {
	t.Parallel()
	l := limiter(t, drawgate.Policy{Name: "two", Limits: []drawgate.Limit{
		{Name: "hour", Kind: drawgate.Rolling, Window: time.Hour, Amount: 100},
		{Name: "minute", Kind: drawgate.Rolling, Window: time.Minute, Amount: 5},
	}})
	c, _ := serve(t, limit(t, l, nil), &server{})
	var header metadata.MD
	if err := call(t, c, grpc.Header(&header)); err != nil {
		t.Fatal(err)
	}
	reset, _ := strconv.ParseInt(one(header, grpclimit.MetadataReset), 10, 64)
	if one(header, grpclimit.MetadataLimit) != "5" || one(header, grpclimit.MetadataRemaining) != "4" ||
		reset < time.Now().Unix() {
		t.Errorf("metadata %v", header)
	}
	quiet, _ := serve(t, limit(t, l, &grpclimit.Options{Quiet: true}), &server{})
	header = nil
	if err := call(t, quiet, grpc.Header(&header)); err != nil || header.Get(grpclimit.MetadataLimit) != nil {
		t.Errorf("quiet: %v, %v", err, header)
	}
}

func TestSeveralBucketsAreOneTake(t *testing.T) {
	t.Parallel()
	hourly := limiter(t, drawgate.Policy{Name: "all", Limits: []drawgate.Limit{{
		Name: "hour", Kind: drawgate.Rolling,
		Window: time.Hour, Amount: 5,
	}}})
	narrow, err := hourly.With(drawgate.PerHour("hour", 1))
	if err != nil {
		t.Fatal(err)
	}
	c, _ := serve(t, limitOf(t, nil,
		grpclimit.Bucket{Limiter: hourly, Key: grpclimit.Fixed("all")},
		grpclimit.Bucket{Limiter: narrow, Key: grpclimit.ByMetadata("X-User")},
	), &server{})
	as := func(user string) error {
		_, err := c.UnaryCall(metadata.AppendToOutgoingContext(t.Context(), "x-user", user), &echo.SimpleRequest{})
		return err
	}
	if err := as("ann"); err != nil {
		t.Fatal(err)
	}
	for range 5 {
		if err := as("ann"); status.Code(err) != codes.ResourceExhausted {
			t.Fatalf("ann's second call: %v", err)
		}
	}
	for i := range 4 { // what ann was refused cost nothing
		if err := as("user" + strconv.Itoa(i)); err != nil {
			t.Fatalf("call %d of 5: %v", i+2, err)
		}
	}
	if err := as("zoe"); status.Code(err) != codes.ResourceExhausted {
		t.Errorf("the sixth of five: %v", err)
	}
}

func TestHealthIsExemptAndOthersMayBe(t *testing.T) {
	t.Parallel()
	c, health := serve(t, limit(t, limiter(t, drawgate.PerHour("hour", 1)), nil), &server{})
	for range 5 {
		if _, err := health.Check(t.Context(), &healthpb.HealthCheckRequest{}); err != nil {
			t.Fatal(err)
		}
	}
	if err := call(t, c); err != nil {
		t.Errorf("health spent what was for others: %v", err)
	}
	c, health = serve(t, limit(t, limiter(t, drawgate.PerHour("hour", 1)),
		&grpclimit.Options{Exempt: []string{"/grpc.testing.TestService/UnaryCall"}}), &server{})
	for range 3 {
		if err := call(t, c); err != nil {
			t.Fatal(err)
		}
	}
	_, _ = health.Check(t.Context(), &healthpb.HealthCheckRequest{})
	if _, err := health.Check(t.Context(),
		&healthpb.HealthCheckRequest{}); status.Code(err) != codes.ResourceExhausted {
		t.Errorf("health without an exemption: %v", err)
	}
}

// single is a policy of one call at a time.
func single() drawgate.Policy {
	return drawgate.Policy{Name: "slots", Limits: []drawgate.Limit{{
		Name: "at-once", Kind: drawgate.Concurrency,
		Amount: 1,
	}}}
}

func TestSlotIsHeldWhileTheHandlerRuns(t *testing.T) {
	t.Parallel()
	begun, end := make(chan struct{}, 1), make(chan struct{})
	var first atomic.Bool
	c, _ := serve(t, limit(t, limiter(t, single()), nil), &server{unary: func(context.Context) error {
		if !first.CompareAndSwap(false, true) {
			return nil
		}
		begun <- struct{}{}
		<-end
		return errors.New("it failed")
	}})
	done := make(chan error, 1)
	go func() {
		_, err := c.UnaryCall(context.WithoutCancel(t.Context()), &echo.SimpleRequest{})
		done <- err
	}()
	<-begun
	err := call(t, c)
	if status.Code(err) != codes.ResourceExhausted {
		t.Errorf("a second call at once: %v", err)
	}
	close(end)
	if err := <-done; status.Code(err) != codes.Unknown {
		t.Errorf("the handler's own error: %v", err)
	}
	if err := call(t, c); err != nil {
		t.Errorf("after the first has ended: %v", err)
	}
}

func TestPanicGivesTheSlotBack(t *testing.T) {
	t.Parallel()
	l := limit(t, limiter(t, single()), nil)
	info := &grpc.UnaryServerInfo{FullMethod: "/s/m"}
	for range 3 {
		func() {
			defer func() {
				if recover() == nil {
					t.Error("the handler was not called")
				}
			}()
			_, err := l.Unary(t.Context(), nil, info, func(context.Context, any) (any, error) { panic("handler") })
			t.Errorf("it did not panic: %v", err)
		}()
	}
}

// opened is a stream of which only the context is used.
type opened struct {
	grpc.ServerStream
	ctx context.Context //nolint:containedctx // as a stream has it
}

func (o opened) Context() context.Context     { return o.ctx }
func (o opened) SetHeader(metadata.MD) error  { return nil }
func (o opened) SendHeader(metadata.MD) error { return nil }
func (o opened) SetTrailer(metadata.MD)       {}

func TestStreamHoldsItsSlotForLongerThanAHold(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const hold = time.Second
		l := limit(t, limiter(t, single()), &grpclimit.Options{Hold: hold})
		call := func() error {
			info := &grpc.UnaryServerInfo{FullMethod: "/s/m"}
			_, err := l.Unary(t.Context(), nil, info, func(context.Context, any) (any, error) { return nil, nil })
			return err
		}
		handler := func(_ any, s grpc.ServerStream) error {
			for range 100 {
				time.Sleep(hold / 10)
				if err := call(); status.Code(err) != codes.ResourceExhausted || s.Context().Err() != nil {
					t.Errorf("a call while the stream is open: %v", err)
				}
			}
			return nil
		}
		if err := l.Stream(nil, opened{ctx: t.Context()}, &grpc.StreamServerInfo{FullMethod: "/s/stream"},
			handler); err != nil {
			t.Fatal(err)
		}
		if err := call(); err != nil {
			t.Errorf("after the stream has ended: %v", err)
		}
	})
}

// A client that leaves without closing its stream ends it as well.
func TestStreamsTakeSlotsFromEachOtherUntilTheyEnd(t *testing.T) {
	t.Parallel()
	c, _ := serve(t, limit(t, limiter(t, single()), nil),
		&server{stream: func(s echo.TestService_FullDuplexCallServer) error {
			if err := s.Send(&echo.StreamingOutputCallResponse{}); err != nil {
				return err
			}
			<-s.Context().Done()
			return s.Context().Err()
		}})
	open := func() (leave context.CancelFunc, err error) {
		ctx, cancel := context.WithCancel(t.Context())
		s, err := c.FullDuplexCall(ctx)
		if err == nil {
			_, err = s.Recv()
		}
		return cancel, err
	}
	leave, err := open()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := open(); status.Code(err) != codes.ResourceExhausted {
		t.Errorf("a second stream while the first is open: %v", err)
	}
	leave()
	patience := time.Now().Add(time.Minute) // until the server has heard of it
	again, err := open()
	for ; status.Code(err) == codes.ResourceExhausted && time.Now().Before(patience); again, err = open() {
		again()
	}
	if err != nil {
		t.Errorf("after the first has left: %v", err)
	}
	again()
}

func TestLostHoldEndsTheHandler(t *testing.T) {
	t.Parallel()
	l := limiter(t, single())
	cause, errs := make(chan error, 1), make(chan error, 10)
	begun := make(chan struct{})
	c, _ := serve(t, limit(t, l, &grpclimit.Options{
		Hold: 100 * time.Millisecond, OnError: func(_ context.Context, _ string, err error) { errs <- err },
	}), &server{stream: func(s echo.TestService_FullDuplexCallServer) error {
		close(begun)
		<-s.Context().Done()
		cause <- context.Cause(s.Context())
		return status.Error(codes.Aborted, "lost")
	}})
	s, err := c.FullDuplexCall(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	<-begun
	if err := l.Reset(t.Context(), "all"); err != nil {
		t.Fatal(err)
	}
	if err := <-cause; !errors.Is(err, grpclimit.ErrHoldLost) {
		t.Errorf("the stream ended because of %v", err)
	}
	if _, err := s.Recv(); status.Code(err) != codes.Aborted {
		t.Errorf("the stream's status: %v", err)
	}
	for err := <-errs; !errors.Is(err, grpclimit.ErrHoldLost); err = <-errs {
		t.Log("on a busy machine a renewal may be late before:", err)
	}
}

func TestCallMayWait(t *testing.T) {
	t.Parallel()
	p := drawgate.Policy{Name: "soon", Limits: []drawgate.Limit{{
		Name: "short", Kind: drawgate.Rolling,
		Window: 200 * time.Millisecond, Amount: 1,
	}}}
	c, _ := serve(t, limit(t, limiter(t, p), &grpclimit.Options{Wait: 10 * time.Second}), &server{})
	for range 3 {
		if err := call(t, c); err != nil {
			t.Fatal(err)
		}
	}
	c, _ = serve(t, limit(t, limiter(t, drawgate.PerHour("hour", 1)), &grpclimit.Options{Wait: 10 * time.Millisecond}),
		&server{})
	_ = call(t, c)
	if err := call(t, c); status.Code(err) != codes.ResourceExhausted {
		t.Errorf("a wait that is too long: %v", err)
	}
}

// downStore is a store that decides nothing.
type downStore struct{ drawgate.Store }

func (downStore) Take(context.Context, []store.Take, []store.Verdict) error {
	return &drawgate.StoreError{Store: "test", Op: "take", Err: errors.New("the link is down")}
}

func TestUnavailableStoreFailsOrOpens(t *testing.T) {
	t.Parallel()
	l, err := drawgate.New(downStore{memstore.New(nil)}, drawgate.PerHour("hour", 1), nil)
	if err != nil {
		t.Fatal(err)
	}
	errs := make(chan error, 1)
	c, _ := serve(t, limit(t, l, &grpclimit.Options{OnError: func(_ context.Context, _ string,
		err error,
	) {
		errs <- err
	}}), &server{})
	if err := call(t, c); status.Code(err) != codes.Unavailable {
		t.Errorf("closed: %v", err)
	}
	if err := <-errs; !errors.Is(err, drawgate.ErrStoreUnavailable) {
		t.Errorf("told %v", err)
	}
	c, _ = serve(t, limit(t, l, &grpclimit.Options{FailOpen: true}), &server{})
	var header metadata.MD
	if err := call(t, c, grpc.Header(&header)); err != nil || one(header, grpclimit.MetadataFallback) != "true" {
		t.Errorf("open: %v, %v", err, header)
	}
}

func TestCostThatNeverFitsHasNoRetryInfo(t *testing.T) {
	t.Parallel()
	b := grpclimit.Bucket{
		Limiter: limiter(t, drawgate.PerHour("hour", 2)), Key: grpclimit.ByMethod(),
		Costs: func(context.Context, string) []drawgate.Cost {
			return []drawgate.Cost{{N: 3}}
		},
	}
	c, _ := serve(t, limitOf(t, nil, b), &server{})
	err := call(t, c)
	if status.Code(err) != codes.ResourceExhausted {
		t.Fatal(err)
	}
	for _, d := range status.Convert(err).Details() {
		if _, retry := d.(*errdetails.RetryInfo); retry {
			t.Errorf("it says to retry: %v", d)
		}
	}
}

func TestMistakesAreReported(t *testing.T) {
	t.Parallel()
	l := limiter(t, drawgate.PerHour("hour", 1))
	other := limiter(t, drawgate.PerDay("day", 1))
	for name, c := range map[string]struct {
		buckets []grpclimit.Bucket
		opts    *grpclimit.Options
	}{
		"no bucket":        {},
		"no limiter":       {buckets: []grpclimit.Bucket{{}}},
		"same policy":      {buckets: []grpclimit.Bucket{{Limiter: l}, {Limiter: l}}},
		"foreign limiters": {buckets: []grpclimit.Bucket{{Limiter: l}, {Limiter: other}}},
		"short hold": {
			buckets: []grpclimit.Bucket{{Limiter: l}},
			opts:    &grpclimit.Options{Hold: time.Millisecond},
		},
		"negative wait": {buckets: []grpclimit.Bucket{{Limiter: l}}, opts: &grpclimit.Options{Wait: -1}},
		"no method": {
			buckets: []grpclimit.Bucket{{Limiter: l}},
			opts:    &grpclimit.Options{Exempt: []string{"health"}},
		},
		"every method": {
			buckets: []grpclimit.Bucket{{Limiter: l}},
			opts:    &grpclimit.Options{Exempt: []string{"/*"}},
		},
	} {
		if _, err := grpclimit.New(c.buckets, c.opts); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

// req: PEERS 21.
func TestPeerIsCountedThroughTrustedProxiesOnly(t *testing.T) {
	t.Parallel()
	trusted, err := httplimit.NewProxies([]netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}, nil)
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		proxies grpclimit.Proxies
		passes  bool
	}{"nobody is trusted": {nil, false}, "the peer is trusted": {trusted, true}} {
		client, _ := serve(t, limitOf(t, nil, grpclimit.Bucket{
			Limiter: limiter(t, drawgate.PerHour("hour", 1)),
			Key:     grpclimit.ByPeer(c.proxies),
		}), &server{})
		from := func(addr string) error {
			_, err := client.UnaryCall(metadata.AppendToOutgoingContext(t.Context(), "x-forwarded-for", addr),
				&echo.SimpleRequest{})
			return err
		}
		if err := from("192.0.2.1"); err != nil {
			t.Fatal(err)
		}
		if err := from("198.51.100.7"); (err == nil) != c.passes {
			t.Errorf("%s: another address: %v", name, err)
		}
		if err := from("2001:db8::1"); (err == nil) != c.passes {
			t.Errorf("%s: an IPv6 address: %v", name, err)
		}
		if err := from("2001:db8::2"); status.Code(err) != codes.ResourceExhausted {
			t.Errorf("%s: the same /64: %v", name, err)
		}
	}
}

func one(md metadata.MD, name string) string {
	if v := md.Get(name); len(v) == 1 {
		return v[0]
	}
	return ""
}

// If the policies count no requests, calls that name no unit would take nothing. This mistake is
// found before the first call.
func TestBucketsThatTakeNothing(t *testing.T) {
	t.Parallel()
	tokens := limiter(t, drawgate.Policy{Name: "tokens", Limits: []drawgate.Limit{{
		Name: "tpm", Unit: "tokens",
		Kind: drawgate.Rolling, Amount: 10, Window: time.Minute,
	}}})
	if _, err := grpclimit.New([]grpclimit.Bucket{{Limiter: tokens}}, nil); !errors.Is(err, drawgate.ErrUnknownUnit) ||
		!strings.Contains(err.Error(), "name a cost in tokens") {
		t.Errorf("%v, want an error that names the units", err)
	}
	costs := func(context.Context, string) []drawgate.Cost { return []drawgate.Cost{{Unit: "tokens", N: 1}} }
	if _, err := grpclimit.New([]grpclimit.Bucket{{Limiter: tokens, Costs: costs}}, nil); err != nil {
		t.Error(err)
	}
}

// A paused bucket gives RESOURCE_EXHAUSTED until the pause ends, also with concurrency limits, and
// without a QuotaFailure.
func TestPauseIsSaid(t *testing.T) {
	t.Parallel()
	st := memstore.New(nil)
	l, err := drawgate.New(st, drawgate.Policy{
		Name:   "slots",
		Limits: []drawgate.Limit{{Name: "slots", Kind: drawgate.Concurrency, Amount: 1}},
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := l.Reserve(t.Context(), "all", time.Second); err != nil {
		t.Fatal(err)
	}
	pause := store.Settlement{
		Op: store.OpPause, Hold: 40 * time.Minute, Reason: "an incident",
		Buckets: []store.BucketCost{{Key: drawgate.Key{Policy: "slots", Name: "all"}, Plan: l.Plan().Plan}},
	}
	if err := st.Settle(t.Context(), []store.Settlement{pause}, make([]store.Outcome, 1)); err != nil {
		t.Fatal(err)
	}
	c, _ := serve(t, limit(t, l, nil), &server{})
	var header metadata.MD
	err = call(t, c, grpc.Header(&header))
	s := status.Convert(err)
	if after, _ := strconv.Atoi(one(header, grpclimit.MetadataRetry)); s.Code() != codes.ResourceExhausted ||
		s.Message() != "calls like this one are paused" || after < 1200 {
		t.Errorf("%v, metadata %v", err, header)
	}
	for _, d := range s.Details() {
		if _, ok := d.(*errdetails.RetryInfo); !ok {
			t.Errorf("detail %v", d)
		}
	}
}
