package outbound_test

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"sync/atomic"
	"testing"

	"github.com/drawgate/drawgate/llm"
	"github.com/drawgate/drawgate/outbound"
)

// TestRequestsAreSentOnce: net/http sends a request again if its connection is lost and it has an
// idempotency key. No provider documents one: the second request would be counted, and not by us.
//
// req: C1
func TestRequestsAreSentOnce(t *testing.T) {
	t.Parallel()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	var arrived atomic.Int64
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			go serve(c, &arrived)
		}
	}()
	l := limiter(t, units("gpt-4o"))
	base := &http.Transport{}
	defer base.CloseIdleConnections()
	client := outbound.New(outbound.PerModel("project", l), &outbound.Options{Breaker: outbound.Breaker{Failures: -1}})
	rt := outbound.NewTransport(client, llm.OpenAI(), &outbound.TransportOptions{Base: base})
	a := apis["openai chat"]
	sent := int64(0)
	for range 3 { // of each connection the second request is lost
		for _, lost := range []bool{false, true} {
			req := a.request(t.Context(), t, false, "x")
			req.URL.Host = ln.Addr().String()
			req.Header.Set("Idempotency-Key", "k")
			resp, err := rt.RoundTrip(req)
			if err == nil {
				io.Copy(io.Discard, resp.Body)
				resp.Body.Close()
			}
			if sent++; (err != nil) != lost {
				t.Fatalf("request %d: %v", sent, err)
			}
		}
	}
	if n := arrived.Load(); n != sent {
		t.Errorf("%d requests arrived, %d were made", n, sent)
	}
	if n := used(t, l)[0]; n != sent {
		t.Errorf("%d requests are counted, want %d", n, sent)
	}
}

// serve answers the first request of a connection, and closes it after reading the second.
func serve(c net.Conn, arrived *atomic.Int64) {
	defer c.Close()
	r := bufio.NewReader(c)
	for i := range 2 {
		req, err := http.ReadRequest(r)
		if err != nil {
			return
		}
		if _, err := io.Copy(io.Discard, req.Body); err != nil {
			return
		}
		arrived.Add(1)
		if i == 0 {
			io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}")
		}
	}
}
