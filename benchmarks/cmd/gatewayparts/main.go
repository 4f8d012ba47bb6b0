// Command gatewayparts is what the gateway is measured with, each part in a process of its own: an
// upstream that answers at once, in bytes that callers know, and a bare reverse proxy.
package main

import (
	"errors"
	"flag"
	"fmt"
	"net/http"
	"os"
	"time"
)

func main() {
	upstream := flag.String("upstream", "", "be the upstream, at this address")
	proxy := flag.String("proxy", "", "be the reverse proxy, at this address")
	to := flag.String("to", "",
		"upstreams of the proxy by the first segment of the path: name=host:port,name=host:port")
	duplex := flag.Bool("duplex", true, "let the proxy read a request while it answers it")
	flag.Parse()
	if err := run(*upstream, *proxy, *to, *duplex); err != nil {
		fmt.Fprintln(os.Stderr, "gatewayparts:", err)
		os.Exit(1)
	}
}

func run(upstream, proxy, to string, duplex bool) error {
	s := &http.Server{ReadHeaderTimeout: 10 * time.Second}
	switch {
	case upstream != "":
		s.Addr, s.Handler = upstream, newUpstream()
	case proxy != "":
		h, err := newProxy(to, duplex)
		if err != nil {
			return err
		}
		s.Addr, s.Handler = proxy, h
	default:
		return errors.New("give -upstream or -proxy")
	}
	return s.ListenAndServe()
}
