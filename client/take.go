package client

import (
	"context"
	"net/http"
	"slices"
	"time"

	"github.com/drawgate/drawgate/api"
)

// Take asks for units. A refusal is an answer and no error.
//
// With an ID (and HoldMS) it is sent again until it is answered, which costs nothing more; without,
// it is sent once: see [Error.Maybe]. All that is sent for one call has the same Grant. One that is
// not given is chosen here; if the take then ends without its answer (ctx ended, or no attempt was
// answered), it is cancelled in the background: see [Client.Close]. Who gives a Grant may send the
// take again with it, and has to cancel it otherwise. With WaitMS it waits in the server's queue.
func (c *Client) Take(ctx context.Context, t api.Take) (api.Answer, error) {
	own := chooseGrant(&t)
	var out api.Answer
	unsure, err := c.do(ctx, call{method: http.MethodPost, path: "/v1/take", body: t, wait: waitOf(&t), again: t.ID != ""}, &out)
	if own && mayHold(unsure, out.Allowed, err) {
		c.giveUp(ctx, t)
	}
	return out, err
}

// TakeBatch asks for up to api.MaxTakes takes, which are decided one after the other, each for
// itself. The answers are in the same order; one that could not be decided has an Error. It is sent
// again only if all of them have an ID.
func (c *Client) TakeBatch(ctx context.Context, takes []api.Take) ([]api.Answer, error) {
	if len(takes) == 0 {
		return nil, nil // an empty list would be left out, and then it is a take
	}
	takes = slices.Clone(takes)
	own := make([]bool, len(takes))
	q := call{method: http.MethodPost, path: "/v1/take", body: api.TakeRequest{Takes: takes}, again: true}
	for i := range takes {
		own[i] = chooseGrant(&takes[i])
		q.wait = max(q.wait, waitOf(&takes[i]))
		q.again = q.again && takes[i].ID != ""
	}
	var out api.TakeAnswer
	unsure, err := c.do(ctx, q, &out)
	for i := range takes {
		if own[i] && mayHold(unsure, i < len(out.Answers) && out.Answers[i].Allowed, err) {
			c.giveUp(ctx, takes[i])
		}
	}
	if err != nil {
		return nil, err
	}
	return out.Answers, nil
}

// waitOf returns how long the server may let a take wait.
func waitOf(t *api.Take) time.Duration {
	return min(time.Duration(min(max(t.WaitMS, 0), api.MaxWait.Milliseconds()))*time.Millisecond, api.MaxWait)
}

// Status describes a bucket, and what a take of the costs would get there. Nothing is spent.
func (c *Client) Status(ctx context.Context, q api.StatusRequest) (out api.StatusAnswer, err error) {
	_, err = c.do(ctx, call{method: http.MethodPost, path: "/v1/status", body: q, again: true}, &out)
	return out, err
}

// Explain says which rules and limits would apply to a take, and what is left there. Nothing is
// spent.
func (c *Client) Explain(ctx context.Context, q api.ExplainRequest) (out api.ExplainAnswer, err error) {
	_, err = c.do(ctx, call{method: http.MethodPost, path: "/v1/explain", body: q, again: true}, &out)
	return out, err
}

// Policies lists the policies in force, by name.
func (c *Client) Policies(ctx context.Context) ([]api.Policy, error) {
	var out api.PoliciesAnswer
	_, err := c.do(ctx, call{method: http.MethodGet, path: "/v1/policies", again: true}, &out)
	return out.Policies, err
}

// Ready asks whether the server can decide. One that cannot is an answer, too: its Status is
// api.StatusAway.
func (c *Client) Ready(ctx context.Context) (out api.Health, err error) {
	_, err = c.do(ctx, call{method: http.MethodGet, path: "/readyz", again: true}, &out)
	return out, err
}
