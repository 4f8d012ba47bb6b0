package main

import (
	"bytes"
	"io"
	"maps"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"
)

// proxy stands between callers and the stand-in, the same for all contestants: it delays each
// request, and notes it.
type proxy struct {
	url    string
	target string
	pause  func() // once for each request
	server *http.Server
	client *http.Transport

	mu    sync.Mutex
	calls []request
	conns int // that were made to the proxy
}

// request is one that was sent to the service.
type request struct {
	op   string // such as "GetItem"
	body []byte
	ok   bool          // it was carried out
	took time.Duration // in the stand-in, without the delay
}

func startProxy(target string, pause func()) (*proxy, error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	p := &proxy{
		url: "http://" + ln.Addr().String(), target: target, pause: pause,
		client: &http.Transport{MaxIdleConnsPerHost: 1024, DisableCompression: true},
	}
	p.server = &http.Server{Handler: p, ReadHeaderTimeout: time.Minute, ConnState: func(_ net.Conn, s http.ConnState) {
		if s == http.StateNew {
			p.mu.Lock()
			p.conns++
			p.mu.Unlock()
		}
	}}
	go func() { _ = p.server.Serve(ln) }() // it ends with close
	return p, nil
}

func (p *proxy) close() {
	_ = p.server.Close() // nothing is under way any more
	p.client.CloseIdleConnections()
}

// ServeHTTP passes a request on, after the delay.
func (p *proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // the caller has gone
	}
	p.pause()
	sent := time.Now()
	resp, answer, err := p.forward(r, body)
	took := time.Since(sent)
	_, op, _ := strings.Cut(r.Header.Get("X-Amz-Target"), ".")
	p.mu.Lock()
	p.calls = append(p.calls, request{op, body, err == nil && resp.StatusCode == http.StatusOK, took})
	p.mu.Unlock()
	if err != nil {
		w.WriteHeader(http.StatusBadGateway)
		return
	}
	maps.Copy(w.Header(), resp.Header)
	w.Header().Del("Connection") // it is about the stand-in's
	w.WriteHeader(resp.StatusCode)
	_, _ = w.Write(answer) // a caller that has gone needs none
}

func (p *proxy) forward(r *http.Request, body []byte) (*http.Response, []byte, error) {
	out, err := http.NewRequestWithContext(r.Context(), r.Method, p.target+r.URL.RequestURI(), bytes.NewReader(body))
	if err != nil {
		return nil, nil, err
	}
	out.Header = r.Header.Clone()
	resp, err := p.client.RoundTrip(out)
	if err != nil {
		return nil, nil, err
	}
	defer resp.Body.Close() //nolint:errcheck // it was read
	answer, err := io.ReadAll(resp.Body)
	return resp, answer, err
}

// take returns the requests since the last time, and how many connections were made.
func (p *proxy) take() (calls []request, conns int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	calls, conns = p.calls, p.conns
	p.calls, p.conns = nil, 0
	return calls, conns
}
