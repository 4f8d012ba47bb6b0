package main

import (
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"time"
)

// newProxy returns a reverse proxy with what the gateway does to every call and nothing else: it
// finds the upstream by the path and puts the upstream's key in. Its connections are kept as the
// gateway keeps them.
func newProxy(to string, duplex bool) (http.Handler, error) {
	targets := map[string]*url.URL{}
	for part := range strings.SplitSeq(to, ",") {
		name, host, ok := strings.Cut(part, "=")
		if !ok {
			return nil, fmt.Errorf("write -to %q as name=host:port", to)
		}
		targets[name] = &url.URL{Scheme: "http", Host: host}
	}
	proxy := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			name, rest, _ := strings.Cut(strings.TrimPrefix(r.In.URL.Path, "/"), "/")
			r.Out.URL.Path = "/" + rest
			if at := targets[name]; at != nil {
				r.SetURL(at)
			}
			r.Out.Header.Set("Authorization", "Bearer sk-upstream-0123456789")
		},
		Transport: &http.Transport{
			DialContext:         (&net.Dialer{Timeout: 10 * time.Second, KeepAlive: 30 * time.Second}).DialContext,
			MaxIdleConnsPerHost: 256, IdleConnTimeout: 90 * time.Second, WriteBufferSize: 16 << 10,
			DisableCompression: true,
		},
		BufferPool: &pool{},
		ErrorLog:   log.New(io.Discard, "", 0),
	}
	if !duplex {
		return proxy, nil
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_ = http.NewResponseController(w).EnableFullDuplex() // HTTP/1 can
		proxy.ServeHTTP(w, r)
	}), nil
}

// pool keeps the buffers with which answers are copied.
type pool struct{ buffers sync.Pool }

const bufferSize = 32 << 10

func (p *pool) Get() []byte {
	if b, ok := p.buffers.Get().(*[]byte); ok {
		return *b
	}
	return make([]byte, bufferSize)
}

func (p *pool) Put(b []byte) { p.buffers.Put(&b) }
