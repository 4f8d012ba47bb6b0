package main

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
)

// Each request is delayed once, and noted; connections are kept on both sides; the answer is the
// service's, with its Date, by which a store sets its clock.
func TestProxy(t *testing.T) {
	t.Parallel()
	const date = "Mon, 02 Mar 2026 10:00:00 GMT"
	var arrived, pauses atomic.Int64
	addrs := make(chan string, 10)
	service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		arrived.Add(1)
		addrs <- r.RemoteAddr
		body, _ := io.ReadAll(r.Body)
		w.Header().Set("Date", date)
		if string(body) == "refuse" {
			w.WriteHeader(http.StatusBadRequest)
		}
		_, _ = w.Write(append([]byte("answer to "), body...))
	}))
	defer service.Close()
	p, err := startProxy(service.URL, func() {
		if pauses.Add(1) != arrived.Load()+1 {
			t.Error("the request was sent before the delay")
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	defer p.close()
	bodies := []string{"one", "refuse", "three"}
	for _, body := range bodies {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, p.url, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("X-Amz-Target", "DynamoDB_20120810.PutItem")
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if err != nil || string(got) != "answer to "+body || resp.Header.Get("Date") != date ||
			(resp.StatusCode == http.StatusOK) == (body == "refuse") {
			t.Errorf("%s: got %s %q, Date %q, %v", body, resp.Status, got, resp.Header.Get("Date"), err)
		}
	}
	calls, conns := p.take()
	if conns != 1 || len(calls) != len(bodies) || int(pauses.Load()) != len(bodies) {
		t.Errorf("got %d connections, %d requests, %d delays, want 1, %d, %d", conns, len(calls), pauses.Load(),
			len(bodies), len(bodies))
	}
	for i, c := range calls {
		if c.op != "PutItem" || string(c.body) != bodies[i] || c.ok == (bodies[i] == "refuse") {
			t.Errorf("request %d: got %s %q, ok %v", i, c.op, c.body, c.ok)
		}
	}
	close(addrs)
	first := <-addrs
	for addr := range addrs {
		if addr != first {
			t.Errorf("the service was asked from %s and %s, want one connection", first, addr)
		}
	}
	if calls, conns := p.take(); len(calls) != 0 || conns != 0 {
		t.Errorf("got %d requests and %d connections a second time", len(calls), conns)
	}
}
