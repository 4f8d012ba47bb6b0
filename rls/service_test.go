package rls_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	ratelimit "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	reflectionpb "google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/grpc/status"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/engine"
	"github.com/drawgate/drawgate/httplimit"
	"github.com/drawgate/drawgate/rls"
	"github.com/drawgate/drawgate/store"
)

const users = "domain: d\ndescriptors:\n  - {key: user, rate_limit: {unit: hour, requests_per_unit: 3}}\n"

func TestRequestsThatCannotBeDecidedAreErrors(t *testing.T) {
	t.Parallel()
	c := client(t, users, nil)
	many := make([]*common.RateLimitDescriptor, rls.MaxDescriptors)
	for i := range many {
		many[i] = descriptor("user=" + strconv.Itoa(i))
	}
	lots := make([]*common.RateLimitDescriptor, rls.MaxDescriptors+1)
	for i := range lots {
		lots[i] = descriptor("other=x")
	}
	unit := descriptor("user=ann")
	unit.Limit = limitOf(t, "UNKNOWN", 1)
	for name, x := range map[string]struct {
		r    *ratelimit.RateLimitRequest
		want codes.Code
	}{
		"no domain":      {request("", descriptor("user=ann")), codes.InvalidArgument},
		"no descriptors": {request("d"), codes.InvalidArgument},
		"65 descriptors": {request("d", lots...), codes.InvalidArgument},
		"no unit":        {request("d", unit), codes.InvalidArgument},
		"a refund":       {request("d", negative(descriptor("user=ann"), 1)), codes.FailedPrecondition},
		// gRPC's own: the message is too large
		"a long message": {request("d", descriptor("user="+strings.Repeat("x", 513<<10))), codes.ResourceExhausted},
	} {
		if a, err := c.ShouldRateLimit(t.Context(), x.r); status.Code(err) != x.want {
			t.Errorf("%s: %v, %v, want %v", name, a, err, x.want)
		}
	}
	if a := answered(t, c, request("d", many...)); a.GetOverallCode() != ok ||
		a.GetStatuses()[63].GetLimitRemaining() != 2 {
		t.Errorf("64 buckets: %v", a)
	}
	if a := answered(t, c, request("d", lots[1:]...)); a.GetOverallCode() != ok {
		t.Errorf("64 descriptors without a limit: %v", a)
	}
}

// What is not decided passes where Envoy's failure_mode_deny is false: somebody must be able to see
// it.
func TestRequestsThatCannotBeDecidedAreLoggedAndCounted(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	counted := map[codes.Code]int{}
	s, _ := service(t, broken{memory(t)}, config(t, users), &rls.Options{
		Logger: slog.New(slog.NewTextHandler(&log, nil)), Undecided: func(code codes.Code) { counted[code]++ },
	})
	lots := request("d")
	for range rls.MaxDescriptors + 1 {
		lots.Descriptors = append(lots.Descriptors, descriptor("user=secret"))
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	for _, ask := range []func() error{
		func() error { _, err := s.ShouldRateLimit(t.Context(), lots); return err },
		func() error {
			_, err := s.ShouldRateLimit(t.Context(), request("d", descriptor("user=secret")))
			return err
		},
		func() error {
			_, err := s.ShouldRateLimit(t.Context(), request("", descriptor("user=secret")))
			return err
		},
		func() error { _, err := s.ShouldRateLimit(gone, request("d", descriptor("user=secret"))); return err },
	} {
		if err := ask(); err == nil {
			t.Error("it was decided")
		}
	}
	if want := map[codes.Code]int{
		codes.InvalidArgument: 2, codes.Unavailable: 1,
		codes.Canceled: 1,
	}; !maps.Equal(counted, want) {
		t.Errorf("counted %v, want %v", counted, want)
	}
	if text := log.String(); strings.Count(text, "\n") != 1 ||
		!strings.Contains(text, "65 descriptors, but at most 64") || strings.Contains(text, "secret") {
		t.Errorf("logged %q, want the first one alone", text)
	}
}

func TestUnknownDomainAndDescriptorAreOK(t *testing.T) {
	t.Parallel()
	c := client(t, users, nil)
	for _, r := range []*ratelimit.RateLimitRequest{
		request("other", descriptor("user=ann")), request("d", descriptor("team=red")),
		request("d", &common.RateLimitDescriptor{}), request("D", descriptor("user=ann")),
		request("d", descriptor("USER=ann")),
	} {
		for range 5 {
			a := answered(t, c, r)
			if s := a.GetStatuses()[0]; a.GetOverallCode() != ok || s.GetCode() != ok || s.GetCurrentLimit() != nil ||
				s.GetDurationUntilReset() != nil {
				t.Fatalf("%v: %v", r, a)
			}
		}
	}
}

func TestSameBucketTwiceIsAskedOnceForBoth(t *testing.T) {
	t.Parallel()
	c := client(t, users, nil)
	twice := request("d", descriptor("user=ann"), hits(descriptor("user=ann"), 2))
	a := answered(t, c, twice)
	if a.GetOverallCode() != ok || a.GetStatuses()[0].GetLimitRemaining() != 0 ||
		a.GetStatuses()[1].GetLimitRemaining() != 0 {
		t.Errorf("1 and 2 of 3: %v", a)
	}
	if a := answered(t, c, twice); a.GetOverallCode() != over {
		t.Errorf("again: %v", a)
	}
}

func TestUnavailableStoreTellsNoSecrets(t *testing.T) {
	t.Parallel()
	s, _ := service(t, broken{memory(t)}, config(t, users), nil)
	c, _ := serve(t, s)
	// Two buckets, because memory decides about one without its Take.
	_, err := c.ShouldRateLimit(t.Context(), request("d", descriptor("user=ann"), descriptor("user=bob")))
	if status.Code(err) != codes.Unavailable || strings.Contains(err.Error(), "secret") {
		t.Errorf("error %v, want UNAVAILABLE without an address", err)
	}
	shadow, _ := service(t, broken{memory(t)}, config(t, users), &rls.Options{Shadow: true})
	a, err := shadow.ShouldRateLimit(t.Context(), request("d", descriptor("user=ann"), descriptor("user=bob")))
	if err != nil || a.GetOverallCode() != ok || len(a.GetStatuses()) != 2 {
		t.Errorf("in shadow: %v, %v", a, err)
	}
}

// req: E9.
func TestGlobalShadowIsAlwaysOKAndTellsTheTruthBelow(t *testing.T) {
	t.Parallel()
	c := client(t, users, &rls.Options{Shadow: true})
	a := free(t, c, "d", "user=ann", 5)
	if a.GetStatuses()[0].GetCode() != over || header(a, "Retry-After") != "" {
		t.Errorf("the fifth of three: %v, want OK over all, OVER_LIMIT below and no Retry-After", a)
	}
}

func TestPeekAtAnEmptyLimitIsOver(t *testing.T) {
	t.Parallel()
	c := client(t, users+"  - {key: other, rate_limit: {unit: hour, requests_per_unit: 3}}\n", nil)
	look := request("d", hits(descriptor("user=ann"), 0))
	free(t, c, "d", "user=ann", 2)
	if a := answered(t, c, look); a.GetOverallCode() != ok || a.GetStatuses()[0].GetLimitRemaining() != 1 {
		t.Errorf("one is left: %v", a)
	}
	free(t, c, "d", "user=ann", 1)
	a := answered(t, c, look)
	if a.GetOverallCode() != over || a.GetStatuses()[0].GetCode() != over || header(a, "Retry-After") == "" {
		t.Errorf("none is left: %v", a)
	}
	a = answered(t, c, request("d", descriptor("other=x"), hits(descriptor("user=ann"), 0)))
	if a.GetOverallCode() != over || a.GetStatuses()[0].GetCode() != ok || a.GetStatuses()[0].GetLimitRemaining() != 3 {
		t.Errorf("a look that is over refuses the request, which then spends nothing: %v", a)
	}
}

func TestReportsCountOverTheLimit(t *testing.T) {
	t.Parallel()
	for name, x := range map[string]struct {
		opts   *rls.Options
		report *common.RateLimitDescriptor
	}{
		"marked":   {nil, hits(descriptor("user=ann,"+rls.ReportKey+"=x"), 2)},
		"checked":  {nil, hits(descriptor("user=ann"), 2)},
		"own hits": {&rls.Options{Reports: rls.ReportOwnHits}, hits(descriptor("user=ann"), 2)},
	} {
		c := client(t, users, x.opts)
		look := request("d", hits(descriptor("user=ann"), 0))
		for i, want := range []struct {
			look, report ratelimit.RateLimitResponse_Code
			left         uint32
		}{{ok, ok, 1}, {ok, over, 0}, {over, over, 0}} {
			if a := answered(t, c, look); a.GetOverallCode() != want.look {
				t.Errorf("%s: look %d: %v", name, i+1, a)
			}
			a := answered(t, c, request("d", x.report))
			if a.GetOverallCode() != ok || a.GetStatuses()[0].GetCode() != want.report ||
				a.GetStatuses()[0].GetLimitRemaining() != want.left {
				t.Errorf("%s: report %d of 2 hits of 3: %v", name, i+1, a)
			}
		}
	}
}

// Weights that are sent with a request, and of which no check came first, are refused if they do
// not fit.
func TestWeightsAreNoReports(t *testing.T) {
	t.Parallel()
	c := client(t, users, nil)
	weight := request("d", hits(descriptor("user=ann"), 2))
	for i, want := range []ratelimit.RateLimitResponse_Code{ok, over, over} {
		if a := answered(t, c, weight); a.GetOverallCode() != want {
			t.Errorf("weight %d of 2 of 3: %v, want %v", i+1, a, want)
		}
	}
}

func TestReportOfMoreThanTheLimitIsDebt(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, _ := service(t, memory(t),
			config(t, "domain: d\ndescriptors:\n  - {key: user, rate_limit: {unit: minute, requests_per_unit: 3}}\n"),
			nil)
		ask := func(d *common.RateLimitDescriptor) ratelimit.RateLimitResponse_Code {
			a, err := s.ShouldRateLimit(t.Context(), request("d", d))
			if err != nil {
				t.Fatal(err)
			}
			return a.GetOverallCode()
		}
		if ask(hits(descriptor("user=ann,"+rls.ReportKey+"=x"), 100)) != ok {
			t.Error("a report was refused")
		}
		if ask(descriptor("user=ann")) != over {
			t.Error("100 of 3 were used, and one more passes")
		}
		time.Sleep(time.Minute + time.Second)
		if ask(descriptor("user=ann")) != ok {
			t.Error("a minute later it is refused still")
		}
	})
}

func TestQuotasWithAnEnforcedRateSpendNothingWhenRefused(t *testing.T) {
	t.Parallel()
	c := client(t, `
domain: d
descriptors:
  - {key: q1, quota_mode: true, rate_limit: {unit: hour, requests_per_unit: 1}}
  - {key: q2, quota_mode: true, rate_limit: {unit: hour, requests_per_unit: 2}}
  - {key: q0, quota_mode: true, rate_limit: {unit: hour, requests_per_unit: 0}}
  - {key: hard, rate_limit: {unit: hour, requests_per_unit: 10}}
  - {key: soft, shadow_mode: true, rate_limit: {unit: hour, requests_per_unit: 10}}
`, &rls.Options{Metadata: true})
	all := request("d", descriptor("hard=x"), descriptor("q1=x"), descriptor("q2=x"), descriptor("q0=x"),
		descriptor("soft=x"))
	left := func(d string) uint32 {
		return answered(t, c, request("d", hits(descriptor(d), 0))).GetStatuses()[0].GetLimitRemaining()
	}
	for i, want := range []struct {
		overall    ratelimit.RateLimitResponse_Code
		hard       uint32
		violations string
	}{{ok, 9, "[3]"}, {ok, 8, "[1 3]"}, {over, 8, "[1 2 3]"}, {over, 8, "[1 2 3]"}} {
		a := answered(t, c, all)
		fields := a.GetDynamicMetadata().GetFields()
		if violations := fmt.Sprint(fields["quotaModeViolations"].GetListValue().
			AsSlice()); a.GetOverallCode() != want.overall || violations != want.violations {
			t.Errorf("request %d: %v, violations %s, want %s", i+1, a, violations, want.violations)
		}
		if got := left("hard=x"); got != want.hard {
			t.Errorf("request %d: %d of 10 remain of the enforced rate, want %d", i+1, got, want.hard)
		}
		if want.overall == over && header(a, "Retry-After") == "" {
			t.Errorf("request %d: no Retry-After", i+1)
		}
	}
}

func TestOverridesWithoutARule(t *testing.T) {
	t.Parallel()
	s, e := service(t, memory(t), config(t, users+`
  - {key: soft, shadow_mode: true, rate_limit: {unit: hour, requests_per_unit: 1}}
`), nil)
	c, _ := serve(t, s)
	carrying := func(text, unit string, n uint32) *common.RateLimitDescriptor {
		d := descriptor(text)
		d.Limit = limitOf(t, unit, n)
		return d
	}
	day := carrying("user=ann", "DAY", 1) // another window than the rule's: a bucket of its own
	if a := answered(t, c, request("d", day, descriptor("user=ann"), descriptor("soft=x"))); a.GetOverallCode() != ok ||
		a.GetStatuses()[1].GetLimitRemaining() != 2 {
		t.Errorf("all have room: %v", a)
	}
	a := answered(t, c, request("d", day, descriptor("user=ann"), descriptor("soft=x")))
	if a.GetOverallCode() != over || a.GetStatuses()[0].GetCode() != over ||
		a.GetStatuses()[1].GetLimitRemaining() != 2 || a.GetStatuses()[2].GetCode() != ok {
		t.Errorf("the carried limit is used up: %v, want that alone to refuse, and nothing spent", a)
	}
	if a := answered(t, c, request("d", carrying("nobody=knows", "MINUTE", 0))); a.GetOverallCode() != over {
		t.Errorf("a carried limit of 0: %v", a)
	}
	for i := range 1500 { // more than are kept
		a, err := s.ShouldRateLimit(t.Context(), request("d", carrying("many=x", "YEAR", uint32(5000+i))))
		if err != nil || a.GetOverallCode() != ok || a.GetStatuses()[0].GetLimitRemaining() != 4999 {
			t.Fatalf("limit %d: %v, %v", 5000+i, a, err)
		}
	}
	if err := e.Disable(rls.OverridePolicy, time.Now().Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	if a := answered(t, c, request("d", day)); a.GetOverallCode() != ok {
		t.Errorf("carried limits are switched off: %v", a)
	}
}

func TestHeadersOfTheirNames(t *testing.T) {
	t.Parallel()
	text := users + "  - {key: all, rate_limit: {unit: hour, requests_per_unit: 100}}\n"
	both := request("d", descriptor("all=x"), descriptor("user=ann"))
	c := client(t, text, &rls.Options{Headers: rls.HeadersLegacy})
	a := answered(t, c, both)
	if header(a, "RateLimit-Limit") != "3" || header(a, "RateLimit-Remaining") != "2" ||
		header(a, "RateLimit-Reset") != "3600" || header(a, "Retry-After") != "" {
		t.Errorf("legacy: %v", a.GetResponseHeadersToAdd())
	}
	c = client(t, text, &rls.Options{
		Headers: rls.HeadersLegacy, LimitHeader: "A", RemainingHeader: "B",
		ResetHeader: "C",
	})
	for range 3 {
		answered(t, c, both)
	}
	a = answered(t, c, both)
	if header(a, "A") != "3" || header(a, "B") != "0" || header(a, "C") == "" || header(a, "Retry-After") == "" {
		t.Errorf("names of their own, refused: %v", a.GetResponseHeadersToAdd())
	}
	c = client(t, text, &rls.Options{Headers: rls.HeadersDraft})
	a = answered(t, c, both)
	if got := header(a, "Ratelimit-Policy"); !strings.Contains(got, `"rls/d/user";q=3;w=3600`) ||
		!strings.Contains(header(a, "Ratelimit"), `"rls/d/user";r=2;t=3600`) {
		t.Errorf("draft: %v", a.GetResponseHeadersToAdd())
	}
	c = client(t, users, &rls.Options{Headers: rls.HeadersNone})
	passes(t, c, "d", "user=ann", 3)
	if a := answered(t, c, request("d", descriptor("user=ann"))); len(a.GetResponseHeadersToAdd()) != 0 {
		t.Errorf("none: %v", a.GetResponseHeadersToAdd())
	}
}

func TestMetadataDescribeTheRequest(t *testing.T) {
	t.Parallel()
	c := client(t, users, &rls.Options{Metadata: true})
	r := request("d", descriptor("user=ann,group=red"), descriptor("user=bob"))
	r.HitsAddend = 2
	got := answered(t, c, r).GetDynamicMetadata().AsMap()
	want := "map[descriptors:[map[entries:[user=ann group=red]] map[entries:[user=bob]]] domain:d hitsAddend:2 quotaModeEnabled:false]"
	if fmt.Sprint(got) != want {
		t.Errorf("metadata %v, want %s", got, want)
	}
}

func TestConfigurationIsReplacedUnderLoad(t *testing.T) {
	t.Parallel()
	text := func(domain string, n int) string {
		return fmt.Sprintf("domain: d\ndescriptors:\n  - {key: %s, rate_limit: {unit: hour, requests_per_unit: %d}}\n",
			domain, n)
	}
	s, e := service(t, memory(t), config(t, text("a", 1_000_000)), nil)
	c, _ := serve(t, s)
	stop := make(chan struct{})
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				for _, key := range []string{"a=x", "b=x"} {
					if _, err := c.ShouldRateLimit(context.Background(), request("d", descriptor(key))); err != nil {
						t.Errorf("%s: %v", key, err)
						return
					}
				}
			}
		})
	}
	for i := range 60 {
		put(t, e, s, config(t, text([]string{"b", "a"}[i%2], 1_000_000+i)))
		time.Sleep(time.Millisecond)
	}
	close(stop)
	wg.Wait()
}

func TestEngineWithoutThePoliciesIsUnavailable(t *testing.T) {
	t.Parallel()
	e, err := engine.New(memory(t), engine.Config{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	s := rls.New(e, &rls.Options{Config: config(t, users)})
	if _, err := s.ShouldRateLimit(t.Context(), request("d",
		descriptor("user=ann"))); status.Code(err) != codes.Unavailable {
		t.Errorf("error %v", err)
	}
}

func TestHealthAndReflection(t *testing.T) {
	t.Parallel()
	s, _ := service(t, memory(t), config(t, users), nil)
	_, conn, served := serveHealth(t, s)
	health := healthpb.NewHealthClient(conn)
	for _, name := range []string{"", rls.ServiceName, "ratelimit"} {
		if r, err := health.Check(t.Context(), &healthpb.HealthCheckRequest{Service: name}); err != nil ||
			r.GetStatus() != healthpb.HealthCheckResponse_SERVING {
			t.Errorf("%q: %v, %v", name, r, err)
		}
	}
	if _, err := health.Check(t.Context(),
		&healthpb.HealthCheckRequest{Service: "other"}); status.Code(err) != codes.NotFound {
		t.Errorf("another service: %v", err)
	}
	watch, err := health.Watch(t.Context(), &healthpb.HealthCheckRequest{Service: rls.ServiceName})
	if err != nil {
		t.Fatal(err)
	}
	if r, err := watch.Recv(); err != nil || r.GetStatus() != healthpb.HealthCheckResponse_SERVING {
		t.Errorf("watched: %v, %v", r, err)
	}
	rls.SetServing(served, false)
	if r, err := watch.Recv(); err != nil || r.GetStatus() != healthpb.HealthCheckResponse_NOT_SERVING {
		t.Errorf("watched, not serving: %v, %v", r, err)
	}
	stream, err := reflectionpb.NewServerReflectionClient(conn).ServerReflectionInfo(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	list := &reflectionpb.ServerReflectionRequest_ListServices{}
	if err := stream.Send(&reflectionpb.ServerReflectionRequest{MessageRequest: list}); err != nil {
		t.Fatal(err)
	}
	r, err := stream.Recv()
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, service := range r.GetListServicesResponse().GetService() {
		names = append(names, service.GetName())
	}
	for _, want := range []string{rls.ServiceName, "grpc.health.v1.Health", "grpc.reflection.v1.ServerReflection"} {
		if !strings.Contains(strings.Join(names, " "), want) {
			t.Errorf("reflection lists %q, not %s", names, want)
		}
	}
}

func TestDisabledPolicyDoesNotCount(t *testing.T) {
	t.Parallel()
	s, e := service(t, memory(t), config(t, users), nil)
	c, _ := serve(t, s)
	passes(t, c, "d", "user=ann", 3)
	const policy = "rls/d/user"
	if err := e.Disable(policy, time.Now().Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	if s := free(t, c, "d", "user=ann", 5).GetStatuses()[0]; s.GetCurrentLimit() != nil {
		t.Errorf("disabled: %v", s)
	}
	carrying := descriptor("user=ann")
	carrying.Limit = limitOf(t, "HOUR", 1)
	for _, d := range []*common.RateLimitDescriptor{carrying, hits(descriptor("user=ann"), 0)} {
		if a := answered(t, c, request("d", d)); a.GetOverallCode() != ok {
			t.Errorf("disabled: %v", a)
		}
	}
	if err := e.Enable(policy); err != nil {
		t.Fatal(err)
	}
	passes(t, c, "d", "user=ann", 0)
	s.Use(nil)
	free(t, c, "d", "user=ann", 5)
}

// lazy is a store that is not in this process, as far as an engine knows, and takes its time for
// what is in shadow.
type lazy struct{ drawgate.Store }

func (l lazy) Take(ctx context.Context, batch []store.Take, out []store.Verdict) error {
	if strings.HasSuffix(batch[0].Buckets[0].Key.Policy, "soft") {
		time.Sleep(10 * time.Millisecond) // longer than an engine waits for shadows
	}
	return l.Store.Take(ctx, batch, out)
}

// What is in shadow may be evaluated after the answer was given, when the next request is being
// decided: the two share nothing. (The race detector looks.)
func TestLateShadowsDoNotDisturb(t *testing.T) {
	t.Parallel()
	s, _ := service(t, lazy{memory(t)}, config(t, `
domain: d
descriptors:
  - {key: soft, shadow_mode: true, detailed_metric: true, rate_limit: {unit: hour, requests_per_unit: 1000000}}
  - {key: hard, rate_limit: {unit: hour, requests_per_unit: 1000000}}
`), nil)
	var wg sync.WaitGroup
	for g := range 4 {
		wg.Go(func() {
			for i := range 20 {
				n := uint64(2 + g + i)
				soft, hard := "soft=x"+strconv.Itoa(g), "hard=y"+strconv.Itoa(g)
				a, err := s.ShouldRateLimit(t.Context(), request("d", hits(descriptor(soft), n),
					hits(descriptor(hard), n)))
				if err != nil || a.GetOverallCode() != ok {
					t.Errorf("%v, %v", a, err)
				}
			}
		})
	}
	wg.Wait()
	for g := range 4 {
		want := uint32(1000000)
		for i := range 20 {
			want -= uint32(2 + g + i)
		}
		a, err := s.ShouldRateLimit(t.Context(), request("d", hits(descriptor("hard=y"+strconv.Itoa(g)), 0)))
		if left := a.GetStatuses()[0].GetLimitRemaining(); err != nil || left != want {
			t.Errorf("%d: %d remain, want %d: %v", g, left, want, err)
		}
	}
}

// Envoy cuts parts of a second off: a client that is told 0, or a second too little, comes too
// early.
func TestResetIsInWholeSecondsRoundedUp(t *testing.T) {
	t.Parallel()
	for name, windows := range map[string]rls.Windows{"rolling": rls.Rolling, "aligned": rls.Aligned} {
		synctest.Test(t, func(t *testing.T) {
			c, err := rls.ParseConfig("f",
				[]byte("domain: d\ndescriptors:\n  - {key: user, rate_limit: {unit: minute, requests_per_unit: 1}}\n"),
				&rls.ConfigOptions{Windows: windows})
			if err != nil {
				t.Fatal(err)
			}
			s, _ := service(t, memory(t), c, &rls.Options{Headers: rls.HeadersLegacy})
			for _, step := range []struct {
				wait time.Duration
				code ratelimit.RateLimitResponse_Code
				want time.Duration
			}{
				{0, ok, time.Minute},
				{1100 * time.Millisecond, over, 59 * time.Second},
				{58500 * time.Millisecond, over, time.Second},
			} {
				time.Sleep(step.wait)
				a, err := s.ShouldRateLimit(t.Context(), request("d", descriptor("user=ann")))
				if err != nil {
					t.Fatal(err)
				}
				st := a.GetStatuses()[0]
				if st.GetCode() != step.code || st.GetDurationUntilReset().AsDuration() != step.want ||
					header(a, "RateLimit-Reset") != fmt.Sprint(step.want.Seconds()) {
					t.Errorf("%s: %v, want %v and a reset in %v", name, a, step.code, step.want)
				}
			}
		})
	}
}

// A refusal of more hits than the limit ever grants has what every refusal has.
func TestRefusalOfMoreHitsThanTheLimitIsDescribed(t *testing.T) {
	t.Parallel()
	const file = `
domain: d
descriptors:
  - {key: user, rate_limit: {unit: hour, requests_per_unit: 5}}
  - {key: half, quota_mode: true, rate_limit: {unit: hour, requests_per_unit: 5}}
  - {key: all, rate_limit: {unit: hour, requests_per_unit: 100}}
`
	carrying := descriptor("free=x")
	carrying.Limit = limitOf(t, "HOUR", 5)
	for style, names := range map[rls.Headers][]string{
		rls.HeadersLegacy: {"RateLimit-Limit", "RateLimit-Remaining", "RateLimit-Reset"},
		rls.HeadersDraft:  {httplimit.HeaderRateLimit, httplimit.HeaderPolicy},
	} {
		opts := &rls.Options{Headers: style}
		for name, x := range map[string]struct {
			c ratelimit.RateLimitServiceClient
			d *common.RateLimitDescriptor
		}{
			"file":    {client(t, file, opts), descriptor("user=ann")},
			"quota":   {client(t, file, opts), descriptor("half=ann")},
			"carried": {client(t, file, opts), carrying},
			"rules":   {byRules(t, perDescriptor(5, 100), opts), descriptor("user=ann")},
		} {
			a := answered(t, x.c, request("d", hits(x.d, 6)))
			st := a.GetStatuses()[0]
			if a.GetOverallCode() != over || st.GetCode() != over || st.GetCurrentLimit().GetRequestsPerUnit() != 5 ||
				st.GetLimitRemaining() != 5 || st.GetDurationUntilReset().GetSeconds() < 1 {
				t.Errorf("%s: %v", name, a)
			}
			for _, h := range names {
				if header(a, h) == "" {
					t.Errorf("%s: there is no %s: %v", name, h, a)
				}
			}
			if header(a, "Retry-After") != "" {
				t.Errorf("%s: no wait helps: %v", name, a)
			}
		}
	}
	for name, c := range map[string]ratelimit.RateLimitServiceClient{
		"file":  client(t, file, &rls.Options{Headers: rls.HeadersDraft}),
		"rules": byRules(t, perDescriptor(5, 100), &rls.Options{Headers: rls.HeadersDraft}),
	} {
		passes(t, c, "d", "user=ann", 5)
		a := answered(t, c, request("d", hits(descriptor("user=ann"), 0)))
		if a.GetOverallCode() != over || header(a, httplimit.HeaderRateLimit) == "" || header(a, "Retry-After") == "" {
			t.Errorf("%s: a look that is refused: %v", name, a)
		}
	}
	c := client(t, file, nil)
	a := answered(t, c, request("d", hits(descriptor("half=ann"), 6), descriptor("half=bob"), descriptor("all=x")))
	if st := a.GetStatuses()[0]; a.GetOverallCode() != ok || st.GetCode() != over ||
		st.GetCurrentLimit().GetRequestsPerUnit() != 5 {
		t.Errorf("a quota that is over beside one that is not: %v", a)
	}
	if a.GetStatuses()[2].GetLimitRemaining() != 99 {
		t.Errorf("what passed was not counted once: %v", a)
	}
}

// What a fallback decided is an error where that is asked for, as with envoyproxy/ratelimit:
// Envoy's failure_mode_deny decides.
func TestStoreErrorsInPlaceOfAFallback(t *testing.T) {
	t.Parallel()
	for _, r := range []*ratelimit.RateLimitRequest{
		request("d", descriptor("user=ann")),
		request("d", hits(descriptor("user=ann"), 0)), request("rules", descriptor("user=ann")),
	} {
		for name, x := range map[string]struct {
			opts rls.Options
			want codes.Code
		}{
			"fallback": {rls.Options{}, codes.OK}, "error": {rls.Options{StoreErrors: true}, codes.Unavailable},
			"shadow": {rls.Options{StoreErrors: true, Shadow: true}, codes.OK},
		} {
			x.opts.Config = config(t, users)
			c := perDescriptor(5, 100)
			c.Policies = append(c.Policies, x.opts.Config.Policies()...)
			a, err := byRulesOver(t, marking{memory(t)}, c, &x.opts).ShouldRateLimit(t.Context(), r)
			if status.Code(err) != x.want {
				t.Errorf("%v, %s: %v, %v", r, name, a, err)
			}
		}
	}
	a := answered(t, client(t, users, &rls.Options{StoreErrors: true}), request("d", descriptor("user=ann")))
	if a.GetOverallCode() != ok || a.GetStatuses()[0].GetLimitRemaining() != 2 {
		t.Errorf("the store decided: %v", a)
	}
}

// A paused bucket is over its limit, until the pause ends, though none of its limits is.
func TestPausedBucketIsOverTheLimit(t *testing.T) {
	t.Parallel()
	s, e := service(t, memory(t), config(t, users), &rls.Options{Headers: rls.HeadersDraft})
	c, _ := serve(t, s)
	ann := request("d", descriptor("user=ann"))
	if a := answered(t, c, ann); a.GetOverallCode() != ok {
		t.Fatalf("got %v", a)
	}
	if _, err := e.Pause(t.Context(), engine.Ask{Policy: "rls/d/user", Key: "ann"},
		drawgate.Pause{For: 40 * time.Minute}); err != nil {
		t.Fatal(err)
	}
	a := answered(t, c, ann)
	if after, _ := strconv.Atoi(header(a, "Retry-After")); a.GetOverallCode() != over || after < 1200 {
		t.Errorf("got %v", a)
	}
}
