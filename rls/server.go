package rls

import (
	"time"

	ratelimit "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/reflection"
)

// ServerOptions holds the optional settings of a gRPC server for a Service. The zero value is ready
// to use.
type ServerOptions struct {
	Credentials credentials.TransportCredentials // nil: plaintext

	// bytes of a request; 0 means 512 KiB; at most 1 MiB. Envoy accepts headers of 60 KiB, and each
	// descriptor may have a copy
	MaxMessage int
	MaxStreams uint32 // concurrent requests on a connection; 0 means 1,000
	// lifetime of a connection, after which the client is asked to reconnect, so that it resolves
	// addresses again; 0 means no limit
	MaxAge  time.Duration
	MaxIdle time.Duration // of a connection without a request; 0 means 15 min
	// a connection without traffic for this time is checked, and closed 20 s later if it does not
	// answer; 0 means 2 min
	Ping time.Duration

	More []grpc.ServerOption // applied last: interceptors, stats handlers
}

// Bounds and defaults of a server.
const (
	maxMessage     = 1 << 20
	defaultMessage = 512 << 10
	defaultStreams = 1000
	maxHeaders     = 16 << 10 // bytes of a request's metadata
	defaultIdle    = 15 * time.Minute
	defaultPing    = 2 * time.Minute
	pingAnswer     = 20 * time.Second
	graceOfAge     = 10 * time.Second
	handshake      = 10 * time.Second
	leastPing      = 10 * time.Second // how often clients may ping, even without a request: Envoy does
)

// NewServer returns a gRPC server with bounds on the memory that a client can use. opts may be nil.
// Add services with [Register].
func NewServer(opts *ServerOptions) *grpc.Server {
	o := ServerOptions{}
	if opts != nil {
		o = *opts
	}
	if o.MaxMessage <= 0 {
		o.MaxMessage = defaultMessage
	}
	if o.MaxStreams == 0 {
		o.MaxStreams = defaultStreams
	}
	if o.MaxIdle == 0 {
		o.MaxIdle = defaultIdle
	}
	if o.Ping == 0 {
		o.Ping = defaultPing
	}
	list := []grpc.ServerOption{
		grpc.MaxRecvMsgSize(min(o.MaxMessage, maxMessage)),
		grpc.MaxConcurrentStreams(o.MaxStreams),
		grpc.MaxHeaderListSize(maxHeaders),
		grpc.ConnectionTimeout(handshake),
		grpc.NumStreamWorkers(streamWorkers),
		grpc.KeepaliveParams(keepalive.ServerParameters{
			MaxConnectionIdle: o.MaxIdle, MaxConnectionAge: o.MaxAge, MaxConnectionAgeGrace: graceOfAge, Time: o.Ping,
			Timeout: pingAnswer,
		}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: leastPing, PermitWithoutStream: true}),
	}
	if o.Credentials != nil {
		list = append(list, grpc.Creds(o.Credentials))
	}
	return grpc.NewServer(append(list, o.More...)...)
}

// streamWorkers is the number of goroutines that wait for calls; when there are more calls at once,
// new goroutines start. The stack of a new goroutine grows, and is copied, in every call. With
// workers a call took 10 to 25 % less CPU (BenchmarkRLS, 64 callers, 2 cores; 0, 2, 16 and 64
// workers were tried), and on Redis, where calls wait, 512 callers took 10 % less with as many
// workers.
const streamWorkers = 512

// Names for health checks, besides "" for the whole server. The second is the name in
// envoyproxy/ratelimit.
const (
	ServiceName       = "envoy.service.ratelimit.v3.RateLimitService"
	legacyServiceName = "ratelimit"
)

// Register adds a service to a gRPC server, with health checks (grpc.health.v1) and reflection. The
// returned health server reports SERVING; [SetServing] changes that, and its Shutdown reports
// NOT_SERVING for good, for use before the server is stopped.
func Register(g *grpc.Server, s *Service) *health.Server {
	ratelimit.RegisterRateLimitServiceServer(g, s)
	h := health.NewServer()
	healthpb.RegisterHealthServer(g, h)
	reflection.Register(g)
	SetServing(h, true)
	return h
}

// SetServing sets, under all names of the service, whether requests should be sent to it.
func SetServing(h *health.Server, serving bool) {
	state := healthpb.HealthCheckResponse_NOT_SERVING
	if serving {
		state = healthpb.HealthCheckResponse_SERVING
	}
	for _, name := range [...]string{"", ServiceName, legacyServiceName} {
		h.SetServingStatus(name, state)
	}
}
