package client

import (
	"context"
	"iter"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/drawgate/drawgate/api"
)

// The following methods need the server's admin listener.

// Disable switches a policy off for a time: takes pass as if it did not exist, and nothing is
// counted under it.
func (c *Client) Disable(ctx context.Context, policy string, d time.Duration) (out api.Policy, err error) {
	q := api.DisableRequest{ForMS: d.Milliseconds()}
	_, err = c.do(ctx, call{method: http.MethodPost, path: policyPath(policy, "disable"), body: q, again: true}, &out)
	return out, err
}

// Enable switches a policy on again.
func (c *Client) Enable(ctx context.Context, policy string) (out api.Policy, err error) {
	_, err = c.do(ctx, call{method: http.MethodPost, path: policyPath(policy, "enable"), again: true}, &out)
	return out, err
}

func policyPath(policy, verb string) string {
	return "/v1/policies/" + url.PathEscape(policy) + "/" + verb
}

// BucketsQuery selects the buckets to list.
type BucketsQuery struct {
	Policy string // optional if there is only one
	Tenant string // "": the server's own
	Limit  int    // keys in an answer: 0 means api.DefaultBuckets, at most api.MaxBuckets
	After  string // from the previous answer; "": from the first
}

// Buckets lists keys of a policy whose buckets are in use: one page. See [Client.Keys] for all.
func (c *Client) Buckets(ctx context.Context, q BucketsQuery) (out api.BucketsAnswer, err error) {
	v := listValues(q.Limit, map[string]string{"policy": q.Policy, "tenant": q.Tenant, "after": q.After})
	_, err = c.do(ctx, call{method: http.MethodGet, path: "/v1/buckets?" + v.Encode(), wait: listTime, again: true},
		&out)
	return out, err
}

// listValues returns the parameters of a list that are not at their defaults.
func listValues(limit int, texts map[string]string) url.Values {
	v := url.Values{}
	for name, s := range texts {
		if s != "" {
			v.Set(name, s)
		}
	}
	if limit != 0 {
		v.Set("limit", strconv.Itoa(limit))
	}
	return v
}

// UsageQuery selects buckets in use.
type UsageQuery struct {
	Policy string // "": all
	Tenant string // "": the server's own
	Match  string // only those whose policy, tenant or key has this text; capitals and small letters are the same
	Limit  int    // buckets in an answer: 0 means api.DefaultBuckets, at most api.MaxBuckets
}

// Usage lists buckets in use with what is used of their limits, the most used first.
func (c *Client) Usage(ctx context.Context, q UsageQuery) (out api.UsageAnswer, err error) {
	v := listValues(q.Limit, map[string]string{"policy": q.Policy, "tenant": q.Tenant, "match": q.Match})
	_, err = c.do(ctx, call{method: http.MethodGet, path: "/v1/usage?" + v.Encode(), wait: usageTime, again: true},
		&out)
	return out, err
}

// SpendQuery says what of what was spent is wanted.
type SpendQuery struct {
	From, To                   string   // days, such as 2026-11-28; "": this month until now
	By                         []string // what rows tell apart: day, team, key, upstream, model; none: one row in all
	Team, Key, Upstream, Model *string  // only of those; nil: of all
}

// Spend returns what calls of the gateway spent.
func (c *Client) Spend(ctx context.Context, q SpendQuery) (out api.SpendAnswer, err error) {
	v := listValues(0, map[string]string{"from": q.From, "to": q.To, "by": strings.Join(q.By, ",")})
	for name, want := range map[string]*string{
		"team": q.Team, "key": q.Key, "upstream": q.Upstream, "model": q.Model,
	} {
		if want != nil {
			v.Set(name, *want)
		}
	}
	_, err = c.do(ctx, call{method: http.MethodGet, path: "/v1/spend?" + v.Encode(), wait: usageTime, again: true},
		&out)
	return out, err
}

// usageTime is how long a server may take to read all buckets.
const usageTime = 10 * time.Second

// listTime is how long a server may take to list its keys.
const listTime = 30 * time.Second

// Keys yields the keys of a policy whose buckets are in use, page by page, in byte order, until
// there are no more or it yields an error.
func (c *Client) Keys(ctx context.Context, q BucketsQuery) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		for {
			page, err := c.Buckets(ctx, q)
			if err != nil {
				yield("", err)
				return
			}
			for _, key := range page.Keys {
				if !yield(key, nil) {
					return
				}
			}
			if q.After = page.After; q.After == "" {
				return
			}
		}
	}
}

// Waiting describes the takes that wait in the server process: a line for each bucket, the longest
// first. With a policy or a tenant, it describes only their buckets.
func (c *Client) Waiting(ctx context.Context, policy, tenant string) (out api.WaitingAnswer, err error) {
	v := listValues(0, map[string]string{"policy": policy, "tenant": tenant})
	_, err = c.do(ctx, call{method: http.MethodGet, path: "/v1/waiting?" + v.Encode(), again: true}, &out)
	return out, err
}

// RefusalsQuery selects refusals.
type RefusalsQuery struct {
	Policy string // "": all
	Tenant string // "": all that the access token may see
	Limit  int    // refusals in an answer: 0 means 100, at most api.MaxRefusals
}

// Refusals lists what the server process refused lately, the latest first.
func (c *Client) Refusals(ctx context.Context, q RefusalsQuery) (out api.RefusalsAnswer, err error) {
	v := listValues(q.Limit, map[string]string{"policy": q.Policy, "tenant": q.Tenant})
	_, err = c.do(ctx, call{method: http.MethodGet, path: "/v1/refusals?" + v.Encode(), again: true}, &out)
	return out, err
}

// Reset forgets everything about buckets, including open reservations, and returns their number. It
// is sent only once: a second reset would forget what was counted since the first.
func (c *Client) Reset(ctx context.Context, q api.ResetRequest) (int, error) {
	var out api.ResetAnswer
	_, err := c.do(ctx, call{method: http.MethodPost, path: "/v1/reset", body: q}, &out)
	return out.Reset, err
}

// Pause makes a bucket refuse every take for a time. The answer has the end: later than requested
// if the bucket was already paused for longer, which only [Client.Unpause] changes.
func (c *Client) Pause(ctx context.Context, q api.PauseRequest) (out api.PauseAnswer, err error) {
	_, err = c.do(ctx, call{method: http.MethodPost, path: "/v1/pause", body: q, again: true}, &out)
	return out, err
}

// Unpause ends the pause of a bucket that ends at q.Until, as [Client.Status] shows it. A pause
// with another end is left, and the answer has that end; otherwise it has none.
func (c *Client) Unpause(ctx context.Context, q api.UnpauseRequest) (out api.UnpauseAnswer, err error) {
	_, err = c.do(ctx, call{method: http.MethodPost, path: "/v1/unpause", body: q, again: true}, &out)
	return out, err
}

// Adjust corrects what a limit of a bucket has used, and returns what it changed. It is sent only
// once. If the answer is lost, send it again after two seconds: the server looks again at what is
// used first.
func (c *Client) Adjust(ctx context.Context, q api.AdjustRequest) (out api.AdjustAnswer, err error) {
	_, err = c.do(ctx, call{method: http.MethodPost, path: "/v1/adjust", body: q}, &out)
	return out, err
}

// Incidents lists the latest incidents of the server's gateway since an instant, the newest first,
// without their details. The zero time lists all.
func (c *Client) Incidents(ctx context.Context, since time.Time) ([]api.Incident, error) {
	path := "/v1/incidents"
	if !since.IsZero() {
		path += "?since=" + url.QueryEscape(since.UTC().Format(time.RFC3339Nano))
	}
	var out api.IncidentsAnswer
	_, err := c.do(ctx, call{method: http.MethodGet, path: path, again: true}, &out)
	return out.Incidents, err
}

// Incident returns an incident of the server's gateway with all details. The id "last" is that of
// the newest one.
func (c *Client) Incident(ctx context.Context, id string) (out api.Incident, err error) {
	_, err = c.do(ctx, call{method: http.MethodGet, path: "/v1/incidents/" + url.PathEscape(id), again: true}, &out)
	return out, err
}

// Upstreams lists the upstreams of the server's gateway, with the state of their circuits and what
// is used of their quotas. With a name, it lists only that one. It spends nothing.
func (c *Client) Upstreams(ctx context.Context, name string) ([]api.Upstream, error) {
	path := "/v1/upstreams"
	if name != "" {
		path += "?" + url.Values{"name": {name}}.Encode()
	}
	var out api.UpstreamsAnswer
	_, err := c.do(ctx, call{method: http.MethodGet, path: path, wait: listTime, again: true}, &out)
	return out.Upstreams, err
}

// Reload makes the server read its configuration again, and returns what changed. If it has
// mistakes, the old one stays in force, and the problem lists them.
func (c *Client) Reload(ctx context.Context) (out api.ReloadAnswer, err error) {
	_, err = c.do(ctx, call{method: http.MethodPost, path: "/v1/reload"}, &out)
	return out, err
}
