package client

import (
	"context"
	"net/http"
	"slices"
	"time"

	"github.com/drawgate/drawgate/api"
)

// Take asks for units. A refusal is an answer and not an error.
//
// With an ID (and HoldMS) it is sent again until it is answered, which costs nothing more; without
// an ID it is sent once: see [Error.Maybe]. All attempts of one call have the same Grant, which is
// chosen here if it is missing. If the take then ends without an answer (ctx ended, or no attempt
// was answered), it is cancelled in the background: see [Client.Close]. A caller that sets Grant
// may send the take again with it, and must cancel it otherwise. With WaitMS it waits in the
// server's queue; [WithProgress] tells what it waits for.
func (c *Client) Take(ctx context.Context, t api.Take) (api.Answer, error) {
	a, _, err := c.take(ctx, t)
	return a, err
}

// take is Take, and returns when it was sent that was answered.
func (c *Client) take(ctx context.Context, t api.Take) (out api.Answer, sent time.Time, err error) {
	own := chooseGrant(&t)
	q := call{
		method: http.MethodPost, path: "/v1/take", body: t, wait: waitOf(&t), again: t.ID != "",
		progress: progressOf(ctx, &t), sent: &sent,
	}
	unsure, err := c.do(ctx, q, &out)
	if own && mayHold(unsure, out.Allowed, err) {
		c.giveUp(ctx, t)
	}
	return out, sent, err
}

// TakeBatch asks for up to api.MaxTakes takes, which are decided one after the other, separately.
// The answers are in the same order; one that could not be decided has an Error. The batch is only
// sent again if all takes have an ID.
func (c *Client) TakeBatch(ctx context.Context, takes []api.Take) ([]api.Answer, error) {
	if len(takes) == 0 {
		return nil, nil // an empty list is omitted, and then it would be a single take
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

// waitOf returns how long a take may wait in the server.
func waitOf(t *api.Take) time.Duration {
	return min(time.Duration(min(max(t.WaitMS, 0), api.MaxWait.Milliseconds()))*time.Millisecond, api.MaxWait)
}

// Status describes a bucket, and what a take of the costs would get there. Nothing is spent.
func (c *Client) Status(ctx context.Context, q api.StatusRequest) (out api.StatusAnswer, err error) {
	_, err = c.do(ctx, call{method: http.MethodPost, path: "/v1/status", body: q, again: true}, &out)
	return out, err
}

// Explain returns which rules and limits would apply to a take, and what is left there. Nothing is
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

// Ready asks whether the server can decide. If it cannot, that is an answer too: its Status is
// api.StatusUnavailable.
func (c *Client) Ready(ctx context.Context) (out api.Health, err error) {
	_, err = c.do(ctx, call{method: http.MethodGet, path: "/readyz", again: true}, &out)
	return out, err
}
