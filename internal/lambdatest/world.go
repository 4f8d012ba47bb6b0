//go:build linux

package lambdatest

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/config"
	"github.com/drawgate/drawgate/internal/awstest"
	"github.com/drawgate/drawgate/llm/simulator"
	"github.com/drawgate/drawgate/store"
	"github.com/drawgate/drawgate/store/dynamostore"
)

// World is what functions share: a table of dynalite behind a proxy, and a provider whose quota
// they must keep.
type World struct {
	Store string // URL of the table, through the proxy
	Model string // URL of the provider
	Sim   *simulator.Server

	Asked atomic.Int64 // requests to DynamoDB

	atTable  atomic.Pointer[func(op string)] // is called before DynamoDB gets a request
	atAnswer atomic.Pointer[func(op string)] // is called before its answer is passed on
	atModel  atomic.Pointer[func()]          // is called before the provider gets a call
	stopped  atomic.Bool                     // what Points arranged has happened
}

// NewWorld makes a world whose provider grants a quota. It needs credentials in the environment.
func NewWorld(tb testing.TB, quota simulator.Quota) *World {
	tb.Helper()
	w := &World{}
	proxy := httptest.NewServer(w.proxy(tb, awstest.Dynalite(tb).URL))
	tb.Cleanup(proxy.Close)
	l := dynamostore.Location{Table: "drawgate", Region: "us-east-1", Endpoint: proxy.URL}
	w.Store = l.String()
	client, err := dynamostore.Client(tb.Context(), l)
	if err != nil {
		tb.Fatal(err)
	}
	if _, _, err := dynamostore.CreateTable(tb.Context(), client, l.Table, nil); err != nil {
		tb.Fatal(err)
	}
	if w.Sim, err = simulator.New(&simulator.Options{Quotas: []simulator.Quota{quota}}); err != nil {
		tb.Fatal(err)
	}
	model := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if f := w.atModel.Load(); f != nil {
			(*f)()
		}
		w.Sim.ServeHTTP(rw, r)
	}))
	tb.Cleanup(model.Close)
	w.Model = model.URL
	return w
}

// proxy passes requests on to a table, and counts them.
func (w *World) proxy(tb testing.TB, to string) http.Handler {
	tb.Helper()
	target, err := url.Parse(to)
	if err != nil {
		tb.Fatal(err)
	}
	op := func(r *http.Request) string {
		_, op, _ := strings.Cut(r.Header.Get("X-Amz-Target"), ".")
		return op
	}
	return &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(target)
			// DynamoDB carries out what it has received. dynalite crashes if a client breaks off in
			// the middle of a request.
			body, err := io.ReadAll(r.In.Body)
			if err != nil {
				body = nil
			}
			r.Out = r.Out.WithContext(context.WithoutCancel(r.Out.Context()))
			r.Out.Body = io.NopCloser(bytes.NewReader(body))
			w.Asked.Add(1)
			if f := w.atTable.Load(); f != nil {
				(*f)(op(r.In))
			}
		},
		ModifyResponse: func(r *http.Response) error {
			if f := w.atAnswer.Load(); f != nil {
				(*f)(op(r.Request))
			}
			return nil
		},
	}
}

// Points are the points of an invocation at which it waits for somebody else: each func arranges
// that stop is called there once. Clear says whether it was.
func (w *World) Points(stop func()) map[string]func() {
	freeze := stop
	stop = func() {
		w.stopped.Store(true)
		freeze()
	}
	nth := func(n int) *func(string) {
		var seen atomic.Int64
		f := func(op string) {
			if (op == "PutItem" || op == "UpdateItem") && seen.Add(1) == int64(n) {
				stop()
			}
		}
		return &f
	}
	return map[string]func(){
		"the take is on its way":          func() { w.atTable.Store(nth(1)) },
		"the answer to the take is":       func() { w.atAnswer.Store(nth(1)) },
		"the settlement is on its way":    func() { w.atTable.Store(nth(2)) },
		"the answer to the settlement is": func() { w.atAnswer.Store(nth(2)) },
		"the call of the model is on its way": func() {
			f := sync.OnceFunc(stop)
			w.atModel.Store(&f)
		},
	}
}

// Clear removes what Points has arranged, and reports whether it has happened.
func (w *World) Clear() bool {
	w.atTable.Store(nil)
	w.atAnswer.Store(nil)
	w.atModel.Store(nil)
	return w.stopped.Swap(false)
}

// MustAgree checks that the provider saw no call too many, and the table the same calls. lost is
// how many units may count although no call was made, as those of invocations that failed. file is
// the configuration of the functions without its store. limit says which of the policy's limits
// counts all calls. The states of all its limits are returned.
func (w *World) MustAgree(tb testing.TB, file string, key drawgate.Key, limit int, lost int64) []store.LimitUsage {
	tb.Helper()
	if v := w.Sim.Violations(); v.Total > 0 {
		tb.Errorf("%d calls found the provider's limit full: %+v", v.Total, v)
	}
	c, problems := config.Parse("drawgate.yaml", []byte(file+"\nstore: "+w.Store))
	if len(problems) > 0 {
		tb.Fatal(config.Problems(problems))
	}
	r, err := config.Start(tb.Context(), c, &config.OpenOptions{EMF: io.Discard})
	if err != nil {
		tb.Fatal(err)
	}
	defer func() { _ = r.Close() }()
	calls := int64(len(w.Sim.Calls()))
	var st drawgate.Status
	// holds that nobody ended end by themselves
	for end := time.Now().Add(patience); ; time.Sleep(100 * time.Millisecond) {
		if st, err = r.Engine.Limiter(key.Policy).Status(tb.Context(), key.Name); err != nil {
			tb.Fatal(err)
		}
		if st.Open == 0 || time.Now().After(end) {
			break
		}
	}
	used := st.States[limit].Used
	tb.Logf("%d calls, %d units used; %d more than the calls may count", calls, used, lost)
	if used < calls || used > calls+lost || st.Open != 0 {
		tb.Errorf("%d units are used and %d holds open after %d calls; %d more than the calls may count", used, st.Open,
			calls, lost)
	}
	return st.States
}
