package gateway

import (
	"cmp"
	"time"

	"github.com/drawgate/drawgate/api"
	"github.com/drawgate/drawgate/outbound"
)

// Describe lists the upstreams, with the policies that count their models. It asks no store.
func (c *Config) Describe() []api.Upstream {
	list := make([]api.Upstream, len(c.Upstreams))
	for i := range c.Upstreams {
		u := &c.Upstreams[i]
		list[i] = api.Upstream{Name: u.Name, Provider: u.Profile.Name, Owner: u.owner(), Quotas: u.quotas()}
	}
	return list
}

// owner returns the key of the policies' buckets.
func (u *Upstream) owner() string { return cmp.Or(u.Owner, u.Name) }

// quotas lists the policies that count the models.
func (u *Upstream) quotas() []api.Quota {
	list, at := []api.Quota{}, map[string]int{}
	for i := range u.Models {
		m := &u.Models[i]
		k, ok := at[m.Policy]
		if !ok {
			k = len(list)
			at[m.Policy] = k
			list = append(list, api.Quota{Policy: m.Policy})
		}
		list[k].Models = append(list[k].Models, m.Name)
	}
	if s := u.Stored; s != nil {
		k, ok := at[s.Policy]
		if !ok {
			k = len(list)
			list = append(list, api.Quota{Policy: s.Policy})
		}
		list[k].Models = append(list[k].Models, s.model().Name)
	}
	return list
}

// Upstreams is [Config.Describe] for the configuration in force, with what this process does now.
func (h *Handler) Upstreams() []api.Upstream {
	s := h.state.Load()
	list := s.config.Describe()
	for i := range list {
		now := s.upstreams[list[i].Name].client.State()
		list[i].Calls = &api.Calls{
			Circuit: now.Circuit, RetryAfterMS: wholeMillis(now.RetryAfter), UnderWay: now.UnderWay,
			Waiting: now.Waiting,
		}
		for _, k := range now.Circuits {
			list[i].Calls.Circuits = append(list[i].Calls.Circuits, api.Circuit{
				Model: k.Model, Caller: k.Caller, State: k.State, RetryAfterMS: wholeMillis(k.RetryAfter),
			})
		}
	}
	return list
}

// wholeMillis rounds up: a call that comes so much later may try.
func wholeMillis(d time.Duration) api.Millis {
	return api.Millis((d + time.Millisecond - 1).Milliseconds())
}

// States returns what this process does with each upstream now, for metrics.
func (h *Handler) States() []outbound.State {
	s := h.state.Load()
	list := make([]outbound.State, len(s.config.Upstreams))
	for i := range s.config.Upstreams {
		list[i] = s.upstreams[s.config.Upstreams[i].Name].client.State()
	}
	return list
}
