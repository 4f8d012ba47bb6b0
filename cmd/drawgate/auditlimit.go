package main

import (
	"cmp"
	"os"
	"slices"
	"time"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/audit"
	"github.com/drawgate/drawgate/config"
)

// auditQuotas returns the limits to judge by.
func (a *app) auditQuotas(f *auditFlags) (quotas []audit.Quota, err error) {
	if f.preset != "" || f.quotas != "" {
		quotas, err = f.simulated()
	} else {
		quotas, err = a.configuredQuotas()
	}
	if err != nil {
		return nil, err
	}
	for i := range quotas {
		for k := range quotas[i].Limits {
			if l := &quotas[i].Limits[k]; f.marginSet {
				l.Margin = f.margin
				if f.margin == 0 {
					l.Margin = -1 // as late as the answer
				}
			}
		}
	}
	return quotas, f.changeLimits(quotas)
}

// errNoLimits is of an audit that has nothing to judge by.
var errNoLimits = usage("no limits to judge by: name the gateway's file with --config, or a preset with --preset, such as --preset gemini-free")

// configuredQuotas returns the limits of the policies that count the gateway's models, as the
// provider has them: before headroom and what is kept for priorities.
func (a *app) configuredQuotas() (quotas []audit.Quota, err error) {
	path := cmp.Or(a.flags.Config, os.Getenv(config.EnvConfig))
	if path == "" {
		return nil, errNoLimits
	}
	c, err := config.Load(path) // without the environment: an audit needs no keys
	if err != nil {
		return nil, &exitError{exitConfig, err}
	}
	for i := range c.Gateway.Upstreams {
		for _, m := range c.Gateway.Upstreams[i].Models {
			p, ok := c.Policy(m.Policy)
			if !ok || slices.ContainsFunc(quotas, func(q audit.Quota) bool { return q.Name == p.Name }) {
				continue
			}
			q := audit.Quota{Name: p.Name, Policy: p.Name, Shared: true}
			for k := range p.Limits {
				l, ok, err := auditLimit(&p.Limits[k])
				if err != nil {
					return nil, err
				}
				if ok {
					q.Limits = append(q.Limits, l)
				}
			}
			quotas = append(quotas, q)
		}
	}
	if len(quotas) == 0 {
		return nil, errNoLimits
	}
	return quotas, nil
}

// configuredLedger returns the folder that the file names.
func (a *app) configuredLedger() ([]string, error) {
	if path := cmp.Or(a.flags.Config, os.Getenv(config.EnvConfig)); path != "" {
		c, err := config.Load(path)
		if err != nil {
			return nil, &exitError{exitConfig, err}
		}
		if dir := c.Gateway.Ledger.Dir; dir != "" {
			return []string{dir}, nil
		}
	}
	return nil, usage("no ledger to judge: name its folder, as in drawgate audit --config drawgate.yaml ledger/, or a file with gateway.ledger.dir by --config")
}

// auditLimit converts a limit. ok is false for one that no ledger shows.
func auditLimit(l *drawgate.Limit) (out audit.Limit, ok bool, err error) {
	out = audit.Limit{
		Name: l.Name, Unit: l.Unit, Amount: l.Amount, Period: l.Window, Burst: l.Burst, Margin: l.Margin,
		Anchor: l.Anchor,
	}
	switch l.Kind {
	case drawgate.Bucket:
		out.Window = audit.Bucket
	case drawgate.Rolling:
		out.Window = audit.Rolling
	case drawgate.Calendar:
		if l.Every == drawgate.Total { // no provider's: a prepaid budget of ours
			return out, false, nil
		}
		if out.Zone, err = time.LoadLocation(l.Zone); err != nil {
			return out, false, err
		}
		out.Window = audit.Window(l.Every.String()) // they have the same names
		if l.Every == drawgate.Minute {
			out.Window, out.Period = audit.Aligned, time.Minute
		}
	case drawgate.Concurrency:
		return out, false, nil
	}
	return out, true, nil
}

// simulated returns the limits that drawgate simulate would enforce.
func (f *auditFlags) simulated() (quotas []audit.Quota, err error) {
	s := simulateFlags{preset: f.preset, config: f.quotas}
	o, err := s.options()
	if err != nil {
		return nil, err
	}
	for _, q := range o.Quotas {
		out := audit.Quota{Name: q.Name, Models: q.Models, Shared: q.Shared}
		for _, l := range q.Limits {
			zone, err := time.LoadLocation(l.Zone)
			if err != nil {
				return nil, &exitError{exitConfig, err}
			}
			out.Limits = append(out.Limits, audit.Limit{
				Name: l.Name, Unit: string(l.Dimension), Amount: l.Amount, Window: audit.Window(l.Window),
				Period: l.Period, Burst: l.Burst, Zone: zone,
			})
		}
		quotas = append(quotas, out)
	}
	return quotas, nil
}
