package snsnotify_test

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/sns"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/api"
	"github.com/drawgate/drawgate/incident"
	"github.com/drawgate/drawgate/internal/syncbuffer"
	"github.com/drawgate/drawgate/llm"
	"github.com/drawgate/drawgate/llm/simulator"
	"github.com/drawgate/drawgate/outbound"
	"github.com/drawgate/drawgate/store/memstore"
	"github.com/drawgate/drawgate/telemetry/snsnotify"
)

// A provider refuses a call that our limits had allowed: the subscribers of the topic get a message
// at once, with the time, what was left of the limits, how many calls were under way, and the calls
// before. It is the same document as the others have.
//
// req: A14
func TestIncidentReachesSubscribers(t *testing.T) {
	t.Parallel()
	p := newTopic(t)
	got, n := p.subscribe(""), p.open(nil)
	rec := incident.New(&incident.Options{Instance: "node-1", Report: n.Notify})
	t.Cleanup(func() { _ = rec.Close() })
	before := time.Now()
	refusedCall(t, rec.Observer())
	m := next(t, got)
	in := m.incident(t)
	listed := rec.List()[0]
	listed.Now = nil // it is asked for later
	var same api.Incident
	text, err := json.Marshal(&listed)
	if err == nil {
		err = json.Unmarshal(text, &same)
	}
	if err != nil || !reflect.DeepEqual(in, same) {
		t.Errorf("the message has %+v, the recorder %+v, %v", in, same, err)
	}
	if in.At.Before(before.Truncate(time.Microsecond)) || in.At.After(time.Now()) {
		t.Errorf("it was at %v", in.At)
	}
	if len(in.Limits) != 1 || in.Limits[0].Name != "rpm" || in.Limits[0].Remaining != 7 || in.Limits[0].Most != 10 {
		t.Errorf("the limits were %+v", in.Limits)
	}
	if in.Concurrent != 1 || len(in.Takes) != 3 || in.Takes[0].Outcome != "succeeded" ||
		in.Takes[2].Outcome != "refused" || in.Minute == nil || in.Minute.Calls != 3 {
		t.Errorf("%d under way, calls %+v, sum %+v", in.Concurrent, in.Takes, in.Minute)
	}
	if want := "Drawgate: openai refused a call of gpt-4o for its limit per minute (requests)"; m.Subject != want ||
		m.TopicArn != p.arn {
		t.Errorf("the subject is %q, want %q; the topic is %s", m.Subject, want, m.TopicArn)
	}
	if in.Severity != api.SeverityError || in.Instance != "node-1" || len(in.Diagnosis) == 0 {
		t.Errorf("got %+v", in)
	}
}

// refusedCall makes three calls within a quota of 10 per minute, the third of which the provider
// refuses: it admits 2.
func refusedCall(t *testing.T, o *outbound.Observer) {
	t.Helper()
	store := memstore.New(nil)
	t.Cleanup(func() { _ = store.Close() })
	lim, err := drawgate.New(store, drawgate.Policy{
		Name:   "gpt-4o",
		Limits: []drawgate.Limit{drawgate.RollingLimit("rpm", 10, time.Hour)},
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	provider, err := simulator.New(&simulator.Options{Quotas: []simulator.Quota{{
		Provider: simulator.OpenAI, Name: "gpt", Models: []string{"*"},
		Limits: []simulator.Limit{{
			Name: "rpm", Dimension: simulator.Requests, Amount: 2, Window: simulator.Rolling,
			Period: time.Minute,
		}},
	}}})
	if err != nil {
		t.Fatal(err)
	}
	calls := outbound.New(outbound.PerModel("project-1", lim), &outbound.Options{Upstream: "openai", Observer: o})
	sdk := &http.Client{Transport: outbound.NewTransport(calls, llm.OpenAI(),
		&outbound.TransportOptions{Base: provider.Transport()})}
	for i := range 3 {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "https://api.openai.com/v1/chat/completions",
			strings.NewReader(`{"model":"gpt-4o","messages":[{"role":"user","content":"Hello!"}]}`))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Content-Type", "application/json")
		resp, err := sdk.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		_ = resp.Body.Close()
		if refused := resp.StatusCode == http.StatusTooManyRequests; refused != (i == 2) {
			t.Fatalf("call %d: got %d", i, resp.StatusCode)
		}
	}
}

// A subscription can choose by the attributes of messages. Messages keep their order.
//
// req: A14
func TestSubscriptionsChooseByAttributes(t *testing.T) {
	t.Parallel()
	p := newTopic(t)
	all, errors, money, n := p.subscribe(""), p.subscribe(`{"severity": ["error"]}`),
		p.subscribe(`{"meaning": ["credit"], "upstream": ["openai"]}`), p.open(nil)
	for _, in := range []*api.Incident{
		{ID: "1", Severity: api.SeverityError, Upstream: "openai", Meaning: "minute"},
		{ID: "2", Severity: api.SeverityWarning, Upstream: "openai", Meaning: "credit"},
		{ID: "3", Severity: api.SeverityError, Upstream: "gemini", Model: "gemini-2.5-pro", Meaning: "day"},
	} {
		n.Notify(in)
	}
	if err := n.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		from <-chan notification
		want string
	}{"all": {all, "123"}, "errors": {errors, "13"}, "money": {money, "2"}} {
		got := ""
		for len(c.from) > 0 {
			m := <-c.from
			got += m.incident(t).ID
		}
		if got != c.want {
			t.Errorf("%s: got %s, want %s", name, got, c.want)
		}
	}
}

// Close sends what waits.
func TestCloseSendsWhatWaits(t *testing.T) {
	t.Parallel()
	p, r := newTopic(t), newResults()
	got, n := p.subscribe(""), p.open(&snsnotify.Options{CloseTimeout: patience, Ended: r.add})
	for range 5 {
		n.Notify(&api.Incident{ID: "ID"})
	}
	if err := n.Close(); err != nil {
		t.Fatal(err)
	}
	if len(got) != 5 || r.of(snsnotify.Delivered) != 5 {
		t.Errorf("the subscriber got %d, %d were delivered", len(got), r.of(snsnotify.Delivered))
	}
	n.Notify(&api.Incident{ID: "late"})
	if err := n.Close(); err != nil || r.of(snsnotify.Dropped) != 1 {
		t.Errorf("a second Close: %v; %d dropped", err, r.of(snsnotify.Dropped))
	}
}

// script answers calls of SNS: with the next of its answers, and when there are none left with
// success.
type script struct {
	answers []answer
	calls   []time.Time
}

type answer struct {
	status int
	code   string
	text   string
}

const accepted = `<PublishResponse xmlns="http://sns.amazonaws.com/doc/2010-03-31/"><PublishResult><MessageId>1</MessageId></PublishResult></PublishResponse>`

func (s *script) Do(r *http.Request) (*http.Response, error) {
	s.calls = append(s.calls, time.Now())
	if err := r.Context().Err(); err != nil {
		return nil, err
	}
	a := answer{status: http.StatusOK}
	if len(s.answers) > 0 {
		a, s.answers = s.answers[0], s.answers[1:]
	}
	body := accepted
	switch {
	case a.status == 0: // nobody answers
		<-r.Context().Done()
		return nil, r.Context().Err()
	case a.status != http.StatusOK:
		body = `<ErrorResponse xmlns="http://sns.amazonaws.com/doc/2010-03-31/"><Error><Type>Sender</Type><Code>` +
			a.code + `</Code><Message>` + a.text +
			`</Message></Error><RequestId>1</RequestId></ErrorResponse>`
	}
	return &http.Response{
		StatusCode: a.status, Header: http.Header{"Content-Type": {"text/xml"}},
		Body: io.NopCloser(strings.NewReader(body)), Request: r,
	}, nil
}

const testARN = "arn:aws:sns:eu-central-1:123456789012:drawgate"

func (s *script) client() *sns.Client {
	return client("http://sns.test", "test", "test", func(o *sns.Options) { o.HTTPClient = s })
}

// What may end by itself is tried again, with pauses that double; anything else is not. All ways of
// failing are counted, and logged with what to do about them.
func TestRetries(t *testing.T) {
	t.Parallel()
	throttled := answer{http.StatusBadRequest, "Throttling", "Rate exceeded"}
	down := answer{http.StatusServiceUnavailable, "ServiceUnavailable", ""}
	gone := answer{http.StatusNotFound, "NotFound", "Topic does not exist"}
	expired := answer{http.StatusForbidden, "ExpiredToken", "The security token included in the request is expired"}
	for name, c := range map[string]struct {
		answers []answer
		calls   int
		last    snsnotify.Result
		logged  string
	}{
		"passing": {[]answer{throttled, down, {}, expired}, 5, snsnotify.Delivered, "it is sent again"},
		"for good": {
			[]answer{down, gone, down},
			2, snsnotify.Rejected,
			"the topic does not exist: check its name, account and region",
		},
		"no end": {
			[]answer{down, down, down, down, {}, {}, {}, {}, down},
			8, snsnotify.GaveUp,
			"SNS has not answered in time",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s, r, log := &script{answers: c.answers}, newResults(), &syncbuffer.Buffer{}
				n := notifier(t, s.client(), testARN, &snsnotify.Options{
					Ended:  r.add,
					Logger: slog.New(slog.NewTextHandler(log, nil)),
				})
				n.Notify(&api.Incident{ID: "the-id"})
				err := n.Flush(t.Context())
				if (err == nil) != (c.last == snsnotify.Delivered) || len(s.calls) != c.calls || r.of(c.last) != 1 ||
					r.of(snsnotify.Retried) != c.calls-1 {
					t.Errorf("%d calls, %v, %v", len(s.calls), err, r.all)
				}
				if text := log.String(); !strings.Contains(text, c.logged) || !strings.Contains(text, "the-id") ||
					!strings.Contains(text, testARN) {
					t.Errorf("the log has no %q: %s", c.logged, text)
				}
				for i := range s.calls[1:] {
					if gap, least := s.calls[i+1].Sub(s.calls[i]), 500*time.Millisecond<<i; gap < least {
						t.Errorf("call %d came after %v, want at least %v", i+1, gap, least)
					}
				}
			})
		})
	}
}

// A queue that is full drops what is new, and says so. Flush ends with its context, and what waits
// is sent later: so it is with AWS Lambda, which stops a process between two calls.
func TestFlush(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, r, log := &script{answers: []answer{{}, {}}}, newResults(), &syncbuffer.Buffer{}
		n := notifier(t, s.client(), testARN, &snsnotify.Options{
			Queue: 2, Ended: r.add,
			Logger: slog.New(slog.NewTextHandler(log, nil)),
		})
		if err := n.Flush(t.Context()); err != nil {
			t.Errorf("nothing to wait for: %v", err)
		}
		n.Notify(&api.Incident{ID: "0"})
		synctest.Wait() // it is being sent
		for _, id := range []string{"1", "2", "3", "4"} {
			n.Notify(&api.Incident{ID: id})
		}
		if r.of(snsnotify.Dropped) != 2 || !strings.Contains(log.String(), `incident=3`) {
			t.Errorf("%v; log: %s", r.all, log)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := n.Flush(ctx); err == nil || !strings.Contains(err.Error(), "not all incidents were sent yet") {
			t.Errorf("got %v", err)
		}
		if err := n.Flush(t.Context()); err != nil || r.of(snsnotify.Delivered) != 3 {
			t.Errorf("got %v, %v", err, r.all)
		}
	})
}

// What was sent counts as sent, every time, also if the context has ended.
func TestFlushOfNothingAfterItsTime(t *testing.T) {
	t.Parallel()
	n := notifier(t, (&script{}).client(), testARN, nil)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for range 100 {
		if err := n.Flush(ended); err != nil {
			t.Fatal(err)
		}
	}
}

// Close gives up after CloseTimeout, and says how many incidents are lost.
func TestCloseGivesUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, r := &script{answers: make([]answer, 100)}, newResults()
		n := notifier(t, s.client(), testARN, &snsnotify.Options{Ended: r.add})
		for range 3 {
			n.Notify(&api.Incident{})
		}
		start := time.Now()
		err := n.Close()
		if err == nil || err.Error() != "snsnotify: incidents that were not sent: 3; see the log" ||
			time.Since(start) != 5*time.Second || r.of(snsnotify.Dropped) != 3 {
			t.Errorf("got %v after %v, %v", err, time.Since(start), r.all)
		}
	})
}

// What SNS refuses while Close waits counts as not sent, too.
func TestCloseSaysWhatWasRefused(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		gone := answer{http.StatusNotFound, "NotFound", "Topic does not exist"}
		s, r := &script{answers: []answer{{}, gone, gone, gone}}, newResults()
		n := notifier(t, s.client(), testARN, &snsnotify.Options{Ended: r.add, CloseTimeout: time.Minute})
		for range 3 { // the first is tried again, so all are sent while Close waits
			n.Notify(&api.Incident{})
		}
		if err := n.Close(); err == nil || err.Error() != "snsnotify: incidents that were not sent: 3; see the log" ||
			r.of(snsnotify.Rejected) != 3 {
			t.Errorf("got %v, %v", err, r.all)
		}
	})
}

// A company's own authority is obeyed, as AWS's own tools do.
func TestOpenTrustsTheEnvironmentsAuthority(t *testing.T) {
	s := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/xml")
		_, _ = io.WriteString(w, accepted)
	}))
	defer s.Close()
	path := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw}),
		0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("AWS_CA_BUNDLE", path)
	t.Setenv("AWS_ACCESS_KEY_ID", "test")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "test")
	n, err := snsnotify.Open(t.Context(), snsnotify.Topic{ARN: testARN, Endpoint: s.URL},
		&snsnotify.Options{CloseTimeout: patience})
	if err != nil {
		t.Fatal(err)
	}
	n.Notify(&api.Incident{ID: "ID"})
	if err := n.Close(); err != nil {
		t.Error(err)
	}
}

// An ARN of something else is refused at once; the region is the one in it.
func TestTopicIsAnARN(t *testing.T) {
	t.Parallel()
	for arn, want := range map[string]string{
		testARN: "eu-central-1", "arn:aws-cn:sns:cn-north-1:123456789012:a_b-c": "cn-north-1",
		"arn:aws-us-gov:sns:us-gov-west-1:123456789012:a": "us-gov-west-1",
		"": "", "drawgate": "", "arn:aws:sqs:eu-central-1:123456789012:drawgate": "", testARN + ".fifo": "",
		testARN + "\n": "", "arn:aws:sns:eu-central-1:1234:drawgate": "",
	} {
		got, ok := snsnotify.RegionOf(arn)
		if got != want || ok != (want != "") {
			t.Errorf("%q: got %q %v, want %q", arn, got, ok, want)
		}
		n, err := snsnotify.Open(t.Context(), snsnotify.Topic{ARN: arn}, nil)
		if (err == nil) != ok {
			t.Errorf("%q: got %v", arn, err)
		}
		if err == nil {
			_ = n.Close()
		}
	}
}
