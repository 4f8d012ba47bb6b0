// Command noopserver answers without deciding, as the floor of section C: Envoy's rate limit
// service over gRPC, each descriptor with OK, and over HTTP every POST with the same bytes, once
// the body has been read.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"time"

	ratelimit "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
)

type service struct {
	ratelimit.UnimplementedRateLimitServiceServer
}

func (service) ShouldRateLimit(_ context.Context, r *ratelimit.RateLimitRequest) (*ratelimit.RateLimitResponse, error) {
	out := &ratelimit.RateLimitResponse{OverallCode: ratelimit.RateLimitResponse_OK}
	for range r.GetDescriptors() {
		out.Statuses = append(out.Statuses,
			&ratelimit.RateLimitResponse_DescriptorStatus{Code: ratelimit.RateLimitResponse_OK})
	}
	return out, nil
}

func main() {
	rpc := flag.String("grpc", "", "address of the rate limit service")
	web := flag.String("http", "", "address of the HTTP server")
	answer := flag.String("answer", "", "file with the bytes that HTTP requests are answered with")
	flag.Parse()
	if err := run(*rpc, *web, *answer); err != nil {
		fmt.Fprintln(os.Stderr, "noopserver:", err)
		os.Exit(1)
	}
}

func run(rpc, web, answer string) error {
	failed := make(chan error, 2)
	if rpc != "" {
		ln, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", rpc)
		if err != nil {
			return err
		}
		s := grpc.NewServer()
		ratelimit.RegisterRateLimitServiceServer(s, service{})
		go func() { failed <- s.Serve(ln) }()
	}
	if web != "" {
		body, err := os.ReadFile(answer)
		if err != nil {
			return err
		}
		h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if _, err := io.Copy(io.Discard, r.Body); err != nil {
				return
			}
			w.Header().Set("Content-Type", "application/json") // the headers of our answers, too
			w.Header().Set("Cache-Control", "no-store")
			w.Header().Set("X-Content-Type-Options", "nosniff")
			_, _ = w.Write(body)
		})
		s := &http.Server{Addr: web, Handler: h, ReadHeaderTimeout: 5 * time.Second}
		go func() { failed <- s.ListenAndServe() }()
	}
	if rpc == "" && web == "" {
		return errors.New("give -grpc or -http")
	}
	return <-failed
}
