package main

import (
	"context"
	"errors"
	"time"

	"github.com/spf13/cobra"

	"github.com/drawgate/drawgate/api"
	"github.com/drawgate/drawgate/client"
	"github.com/drawgate/drawgate/internal/present"
)

// upstreams shows the quotas of the gateway's upstreams. What could not be read is shown as such,
// and decides the exit code.
func (a *app) upstreams(cmd *cobra.Command) error {
	list, err := a.listUpstreams(cmd.Context())
	if err != nil {
		return err
	}
	if a.json {
		a.printJSON(api.UpstreamsAnswer{Upstreams: list})
	} else {
		present.WriteUpstreams(a.out, list)
	}
	return unread(list)
}

// listUpstreams asks the server, or else the store.
func (a *app) listUpstreams(ctx context.Context) (list []api.Upstream, err error) {
	if a.serverURL() == "" {
		return a.upstreamsHere(ctx)
	}
	err = a.ask(ctx, func(ctx context.Context, c *client.Client) error {
		list, err = c.Upstreams(ctx, "")
		return err
	})
	return list, err
}

// readTime bounds the time for reading the quotas of all upstreams from the store.
const readTime = 10 * time.Second

// upstreamsHere reads the store of this process.
func (a *app) upstreamsHere(ctx context.Context) ([]api.Upstream, error) {
	s, err := a.open(true)
	if err != nil {
		return nil, err
	}
	defer s.close()
	if len(s.Gateway.Upstreams) == 0 {
		a.warnf("no gateway is configured: name its file with --config, or its address for administrators with --server")
	}
	list, err := describeGateway(&s.Gateway)
	if err != nil || s.empty {
		return list, err
	}
	ctx, cancel := context.WithTimeout(ctx, readTime)
	defer cancel()
	present.ReadQuotas(ctx, s.engine, s.tenant, list, problemHere)
	return list, nil
}

// problemHere says why a quota could not be read. There is no server whose log would say it.
func problemHere(err error) *api.Problem {
	p := present.Problem(err)
	if p.Code == api.CodeStoreUnavailable {
		p.Detail = err.Error()
	}
	return p
}

// unread returns an error if the status of a quota is not known.
func unread(list []api.Upstream) error {
	for i := range list {
		for _, q := range list[i].Quotas {
			if q.Error != nil {
				return &exitError{exitUnavailable, errors.New("the usage of some quotas could not be read")}
			}
		}
	}
	return nil
}
