package main

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/drawgate/drawgate/config"
	"github.com/drawgate/drawgate/engine"
	"github.com/drawgate/drawgate/server"
)

const defaultListen = "127.0.0.1:7878"

func (a *app) serveCmd() *cobra.Command {
	var listen string
	var timeout time.Duration
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Answer takes over HTTP",
		Long: `Answer takes over HTTP: POST /v1/take, POST /v1/settle, GET and POST /v1/status, and GET /healthz and /readyz. SIGTERM ends it: requests under way
are finished, those that wait are told to ask elsewhere.

There is no authentication yet: whoever reaches the address may take and settle.`,
		Example: `  drawgate serve
  curl -d '{"key": "user-17"}' http://` + defaultListen + `/v1/take
  drawgate serve --config drawgate.yaml --listen 0.0.0.0:7878`,
		Args: cobra.NoArgs,
		RunE: action(func(cmd *cobra.Command, _ []string) error { return a.serve(cmd, listen, timeout) }),
	}
	cmd.Flags().StringVar(&listen, "listen", defaultListen, "address to listen on; port 0 chooses one")
	durationVar(cmd, &timeout, "store-timeout", time.Second, "for a take that does not wait")
	return cmd
}

func (a *app) serve(cmd *cobra.Command, listen string, timeout time.Duration) (err error) {
	s, err := a.resolve(a.flags)
	if err != nil {
		return err
	}
	if s.off {
		return &exitError{exitConfig, errors.New("RATE_LIMIT_ENABLED switches all limits off, and there is no other policy: nothing to serve")}
	}
	log := a.logger()
	for _, w := range s.Warnings {
		log.Warn(w.Error())
	}
	store, err := s.store(log)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	eng, err := engine.New(store, s.engine(), &engine.Options{Tenant: a.tenant, StoreTimeout: timeout, Logger: log})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, eng.Close()) }()
	srv, err := server.New(eng, store, &server.Options{Tenant: a.tenant, Insecure: true, Logger: log})
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	ln, err := (&net.ListenConfig{}).Listen(ctx, "tcp", listen)
	if err != nil {
		return listenError(listen, err)
	}
	if ip := ln.Addr().(*net.TCPAddr).IP; !ip.IsLoopback() {
		log.Warn("whoever reaches this address may take and settle: there is no authentication yet", "address", ln.Addr().String())
	}
	log.Info("listening on http://"+ln.Addr().String(), "store", config.RedactURL(s.Store), "policies", strings.Join(s.names(), ","))
	if err := srv.Serve(ctx, ln); err != nil {
		return err
	}
	log.Info("stopped")
	return nil
}

// engine returns what the server decides by.
func (s *settings) engine() (c engine.Config) {
	for _, p := range s.Policies {
		c.Policies = append(c.Policies, engine.Policy{Policy: p})
	}
	return c
}

// errInUseWindows is what Windows calls [syscall.EADDRINUSE].
const errInUseWindows = syscall.Errno(10048)

// listenError says why an address cannot be listened on. That another program has it is no mistake of the configuration.
func listenError(listen string, err error) error {
	if !errors.Is(err, syscall.EADDRINUSE) && !errors.Is(err, errInUseWindows) {
		return &exitError{exitConfig, fmt.Errorf("%w: choose another address with --listen", err)}
	}
	host, port, splitErr := net.SplitHostPort(listen)
	if splitErr != nil {
		return &exitError{exitAway, err}
	}
	return &exitError{exitAway, fmt.Errorf("port %s of %s is in use, perhaps by another drawgate serve: choose another one, such as --listen %s, or port 0 for a free one",
		port, cmp.Or(host, "this machine"), net.JoinHostPort(host, "7879"))}
}

func (a *app) logger() *slog.Logger {
	if a.json {
		return slog.New(slog.NewJSONHandler(a.errOut, nil))
	}
	return slog.New(slog.NewTextHandler(a.errOut, nil))
}
