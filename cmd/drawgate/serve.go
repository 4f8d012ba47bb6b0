package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	"github.com/drawgate/drawgate/config"
	"github.com/drawgate/drawgate/rls"
)

// Where the server listens by default.
const (
	defaultListen = "127.0.0.1:7878"
	adminPort     = "7879"
	defaultAdmin  = "127.0.0.1:" + adminPort
)

// serveFlags take precedence over the file and the environment.
type serveFlags struct {
	listen, admin, grpc string
	gateway             string
	timeout             time.Duration
	insecure            bool
	alone               bool // of the listeners for programs only the gateway's
}

func (a *app) serveCmd() *cobra.Command {
	var f serveFlags
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Answer takes over HTTP and gRPC",
		Long: `Answer takes: over HTTP for programs (POST /v1/take and others) and for proxies that ask about requests (/auth), and, with --grpc, over gRPC for
Envoy's rate limit filter. Administrators have an address of their own, with all functions, and with metrics for Prometheus at /metrics.

The configuration is reloaded when one of its files changes, on SIGHUP, and on POST /v1/reload. If it has mistakes, the old one stays in force.
SIGTERM ends the server: running requests are finished, and waiting ones are told to ask another server.

Addresses that are not loopback need access tokens (server.tokens) or client certificates (server.tls.client_ca), or --insecure.

In a layer of AWS Lambda, as extensions/drawgate and without arguments, the program runs this command beside functions in any language.`,
		Example: `  drawgate serve
  curl -d '{"key": "user-17"}' http://` + defaultListen + `/v1/take
  curl http://` + defaultAdmin + `/metrics
  drawgate serve --config drawgate.yaml --listen 0.0.0.0:7878 --grpc 0.0.0.0:7880`,
		Args: noArgs,
		RunE: action(func(cmd *cobra.Command, _ []string) error { return a.serve(cmd, &f) }),
	}
	cmd.Flags().StringVar(&f.listen, "listen", "",
		"address for programs and proxies; port 0 chooses one (default "+defaultListen+")")
	cmd.Flags().StringVar(&f.admin, "admin", "",
		"address for administrators, or off (default "+defaultAdmin+"; with --listen and port 0 a free port)")
	cmd.Flags().StringVar(&f.grpc, "grpc", "", "address for Envoy, or off (default off)")
	cmd.Flags().StringVar(&f.gateway, "gateway", "",
		"address for calls to LLM providers, or off (default "+defaultGateway+" if the file has the section gateway)")
	cmd.Flags().BoolVar(&f.insecure, "insecure", false, "let everybody who can reach the addresses do everything")
	durationVar(cmd, &f.timeout, "store-timeout", 0,
		"how long the store may take for a take that does not wait, before the fallback decides (default 40ms, on SQLite and PostgreSQL 500ms, on DynamoDB 1s)")
	return cmd
}

// merge applies the flags to the configuration, and fills in the defaults.
func (f *serveFlags) merge(c *config.Config) {
	s := &c.Server
	s.Listen = cmp.Or(f.listen, s.Listen, defaultListen)
	admin := defaultAdmin
	if freePort(s.Listen) || f.alone && freePort(f.gateway) {
		admin = "127.0.0.1:0"
	}
	s.Admin = cmp.Or(f.admin, s.Admin, admin)
	s.GRPC = cmp.Or(f.grpc, s.GRPC, config.ListenOff)
	s.Insecure = s.Insecure || f.insecure
	c.StoreTimeout = cmp.Or(f.timeout, c.StoreTimeout)
	f.mergeGateway(c)
}

// freePort reports whether an address leaves the choice of the port to the system.
func freePort(address string) bool {
	_, port, err := net.SplitHostPort(address)
	return err == nil && port == "0"
}

// leastHeap is memory that is reserved but never touched, so that the garbage collector runs less
// often. Each request leaves a few kilobytes of garbage, so a server with a small heap would
// collect after every thousand requests.
const leastHeap = 32 << 20

func (a *app) serve(cmd *cobra.Command, f *serveFlags) (err error) {
	if f.timeout < 0 {
		return usage("--store-timeout %v is negative", f.timeout)
	}
	hangups := make(chan os.Signal, 1)
	signal.Notify(hangups, syscall.SIGHUP) // from the start: a signal without a handler would end the process
	defer signal.Stop(hangups)
	if err := a.checkLambda(); err != nil {
		return err
	}
	s, err := a.resolve(a.flags)
	if err != nil {
		return err
	}
	if s.empty && !s.Off {
		return &exitError{
			exitConfig,
			errors.New("RATE_LIMIT_ENABLED switches all limits off, and there is no other policy, so there is nothing to serve: unset it, or name a file with --config"),
		}
	}
	a.tell(&s)
	f.merge(s.Config)
	if f.alone && s.Gateway.Listen == config.ListenOff {
		return errNoGateway
	}
	ballast := make([]byte, leastHeap)
	defer runtime.KeepAlive(ballast)
	log := a.logger()
	for _, w := range s.Warnings {
		log.Warn(w.OneLine())
	}
	if srv := &s.Server; !s.built && srv.Listen != config.ListenOff && len(srv.Tokens) == 0 && srv.TLS.ClientCA == "" {
		log.Warn("no access token is demanded: whoever reaches " + srv.Listen + " may take and settle (server.tokens)")
	}
	v, err := newService(cmd.Context(), a, s, log)
	if err != nil {
		return err
	}
	v.flags = f
	defer func() { err = errors.Join(err, v.end()) }()
	ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	listeners, err := v.listen(ctx)
	if err != nil {
		return err
	}
	if a.lambda != nil {
		listeners = append(listeners, v.serveLambda)
	}
	v.run.Watch(ctx, v.use)
	go v.hangups(ctx, hangups)
	if err := together(ctx, listeners); err != nil {
		return err
	}
	log.Info("stopped")
	return nil
}

// hangups reloads the configuration at each signal, until ctx ends.
func (v *service) hangups(ctx context.Context, signals <-chan os.Signal) {
	for {
		select {
		case <-signals:
			_, _ = v.run.Reload(ctx) // the log and the metrics have the result
		case <-ctx.Done():
			return
		}
	}
}

// listener serves one address until its context ends.
type listener func(ctx context.Context) error

// together runs listeners until ctx ends or one of them fails, and then ends them all.
func together(ctx context.Context, listeners []listener) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	errs := make([]error, len(listeners))
	var wg sync.WaitGroup
	for i, serve := range listeners {
		wg.Go(func() {
			defer stop()
			errs[i] = serve(ctx)
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// listen opens the addresses.
func (v *service) listen(ctx context.Context) (listeners []listener, err error) {
	c := v.run.Config()
	s := &c.Server
	var open []net.Listener
	var say []func() // after all ports were found to be free: whoever reads it may ask
	defer func() {
		if err != nil {
			for _, ln := range open {
				_ = ln.Close() // nobody knows the address yet
			}
		}
	}()
	for _, d := range []struct {
		flag, address string
		serve         func(context.Context, net.Listener) error
		say           func(addr string)
	}{
		{"--listen", s.Listen, v.http.Serve, func(addr string) {
			v.log.Info("listening on "+v.scheme()+"://"+addr, "store", config.RedactURL(c.Store), "policies",
				strings.Join(v.names, ","))
		}},
		{"--admin", s.Admin, v.http.ServeAdmin, func(addr string) {
			v.log.Info("administration at " + v.scheme() +
				"://" + addr)
		}},
		{"--gateway", c.Gateway.Listen, v.serveGateway, func(addr string) {
			v.log.Info("gateway listening on "+gatewayScheme(&c.Gateway)+"://"+addr, "upstreams",
				upstreamNames(&c.Gateway))
		}},
		{"--grpc", s.GRPC, v.serveEnvoy, func(addr string) {
			v.log.Info("Envoy's rate limit service at grpc://" +
				addr)
		}},
	} {
		if d.address == config.ListenOff {
			continue
		}
		ln, err := (&net.ListenConfig{}).Listen(ctx, "tcp", d.address)
		if err != nil {
			more := ""
			if host, _, err := net.SplitHostPort(s.Admin); err == nil && d.flag == "--listen" {
				more = " --admin " + net.JoinHostPort(host, "7980") // another server has that port as well
			}
			return nil, listenError(d.flag, d.address, more, err)
		}
		open = append(open, ln)
		if err := mayListen(s, d.flag, ln.Addr()); err != nil {
			return nil, err
		}
		say = append(say, func() { d.say(ln.Addr().String()) })
		listeners = append(listeners, func(ctx context.Context) error { return d.serve(ctx, ln) })
	}
	for _, s := range say {
		s()
	}
	notify("READY=1")
	return listeners, nil
}

// mayListen returns an error if an address is not loopback, and everybody who reaches it could do
// everything.
func mayListen(s *config.Server, flag string, addr net.Addr) error {
	a, ok := addr.(*net.TCPAddr)
	switch {
	// callers of the gateway show keys
	case ok && a.IP.IsLoopback(), s.Insecure, s.TLS.ClientCA != "", flag == "--gateway":
		return nil
	case flag == "--grpc":
		return &exitError{exitConfig, errors.New(
			"the service for Envoy has no access tokens: on an address that is not loopback it needs client certificates (server.tls.client_ca), or --insecure")}
	case len(s.Tokens) == 0:
		return &exitError{exitConfig, fmt.Errorf(
			"everybody who can reach %s could take and settle: configure server.tokens or server.tls.client_ca, or use --insecure", addr)}
	}
	return nil
}

func (v *service) scheme() string {
	if v.run.Config().Server.TLS != (config.TLS{}) {
		return "https"
	}
	return "http"
}

// serveGateway serves callers of LLM providers until ctx ends.
func (v *service) serveGateway(ctx context.Context, ln net.Listener) error {
	return v.gateway.Serve(ctx, ln)
}

// stopTime is how long running calls of Envoy's service may take when the server stops.
const stopTime = 5 * time.Second

// serveEnvoy serves Envoy until ctx ends.
func (v *service) serveEnvoy(ctx context.Context, ln net.Listener) error {
	o := &rls.ServerOptions{}
	if v.tls != nil {
		o.Credentials = credentials.NewTLS(v.tls)
	}
	g := rls.NewServer(o)
	health := rls.Register(g, v.envoy)
	done := make(chan error, 1)
	go func() { done <- g.Serve(ln) }()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
	}
	health.Shutdown()
	force := time.AfterFunc(stopTime, g.Stop)
	defer force.Stop()
	g.GracefulStop()
	if err := <-done; !errors.Is(err, grpc.ErrServerStopped) { // it was stopped before it began
		return err
	}
	return nil
}

// errInUseWindows is what Windows calls [syscall.EADDRINUSE].
const errInUseWindows = syscall.Errno(10048)

// listenError returns why the program cannot listen on an address. An address that another program
// uses is not a mistake in the configuration. more are other flags that are probably needed then.
func listenError(flag, listen, more string, err error) error {
	if !errors.Is(err, syscall.EADDRINUSE) && !errors.Is(err, errInUseWindows) {
		return &exitError{exitConfig, fmt.Errorf("%w: choose another address with %s", err, flag)}
	}
	host, port, splitErr := net.SplitHostPort(listen)
	if splitErr != nil {
		return &exitError{exitUnavailable, err}
	}
	return &exitError{
		exitUnavailable,
		fmt.Errorf("port %s of %s is in use, perhaps by another drawgate serve: choose another one, such as %s %s%s, or port 0 for a free one",
			port, cmp.Or(host, "this machine"), flag, net.JoinHostPort(host, "7979"), more),
	}
}

func (a *app) logger() *slog.Logger {
	if a.json {
		return slog.New(slog.NewJSONHandler(a.errOut, nil))
	}
	return slog.New(slog.NewTextHandler(a.errOut, nil))
}
