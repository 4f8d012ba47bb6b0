package grpclimit_test

import (
	"context"
	"net"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	echo "google.golang.org/grpc/interop/grpc_testing"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/grpclimit"
	"github.com/drawgate/drawgate/store/memstore"
)

// server is the limited server. Its funcs may be nil.
type server struct {
	echo.UnimplementedTestServiceServer

	unary  func(context.Context) error
	stream func(echo.TestService_FullDuplexCallServer) error
}

func (s *server) UnaryCall(ctx context.Context, _ *echo.SimpleRequest) (*echo.SimpleResponse, error) {
	if s.unary != nil {
		if err := s.unary(ctx); err != nil {
			return nil, err
		}
	}
	return &echo.SimpleResponse{}, nil
}

func (s *server) FullDuplexCall(stream echo.TestService_FullDuplexCallServer) error {
	if s.stream != nil {
		return s.stream(stream)
	}
	return nil
}

// limiter makes a limiter over a store in memory.
func limiter(tb testing.TB, p drawgate.Policy) *drawgate.Limiter {
	tb.Helper()
	store := memstore.New(nil)
	tb.Cleanup(func() { store.Close() })
	l, err := drawgate.New(store, p, nil)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { l.Close() })
	return l
}

// limit makes a Limit of one bucket under one key.
func limit(tb testing.TB, l *drawgate.Limiter, opts *grpclimit.Options) *grpclimit.Limit {
	tb.Helper()
	return limitOf(tb, opts, grpclimit.Bucket{Limiter: l, Key: grpclimit.Fixed("all")})
}

func limitOf(tb testing.TB, opts *grpclimit.Options, buckets ...grpclimit.Bucket) *grpclimit.Limit {
	tb.Helper()
	limit, err := grpclimit.New(buckets, opts)
	if err != nil {
		tb.Fatal(err)
	}
	return limit
}

// serve serves s on loopback behind a limit, and returns clients.
func serve(tb testing.TB, l *grpclimit.Limit, s *server) (echo.TestServiceClient, healthpb.HealthClient) {
	tb.Helper()
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	g := grpc.NewServer(grpc.UnaryInterceptor(l.Unary), grpc.StreamInterceptor(l.Stream))
	echo.RegisterTestServiceServer(g, s)
	healthpb.RegisterHealthServer(g, health.NewServer())
	done := make(chan error, 1)
	go func() { done <- g.Serve(lis) }()
	conn, err := grpc.NewClient(lis.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		conn.Close()
		g.Stop()
		<-done
	})
	return echo.NewTestServiceClient(conn), healthpb.NewHealthClient(conn)
}

// call calls once.
func call(t *testing.T, c echo.TestServiceClient, opts ...grpc.CallOption) error {
	t.Helper()
	_, err := c.UnaryCall(t.Context(), &echo.SimpleRequest{}, opts...)
	return err
}
