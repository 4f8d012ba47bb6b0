package present

import (
	"context"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/api"
	"github.com/drawgate/drawgate/engine"
)

// ReadQuotas fills in the status of the quotas of upstreams, the first [api.MaxQuotas] of them. It
// spends nothing. problem says what an error is in an answer.
func ReadQuotas(ctx context.Context, e *engine.Engine, tenant string, list []api.Upstream,
	problem func(error) *api.Problem,
) {
	n := 0
	for i := range list {
		for k := range list[i].Quotas {
			q := &list[i].Quotas[k]
			if n++; n > api.MaxQuotas {
				q.Error = Problemf(api.CodeInvalid, "this is more than %d quotas: ask for one upstream at a time",
					api.MaxQuotas)
				continue
			}
			w, err := readQuota(ctx, e, q.Policy, tenant, list[i].Owner)
			if err != nil {
				q.Error = problem(err)
				continue
			}
			q.Status = &w
		}
	}
}

func readQuota(ctx context.Context, e *engine.Engine, policy, tenant, owner string) (w api.StatusAnswer, err error) {
	ask, err := e.Ask(policy, tenant, owner)
	if err != nil {
		return w, err
	}
	if plan := ask.Limiter.Plan(); !plan.CountsRequests() {
		ask.Costs = []drawgate.Cost{{Unit: plan.Policy().Limits[0].Unit, N: 1}}
	}
	st, err := ask.Status(ctx, 0)
	if err != nil {
		return w, err
	}
	w = Status(policy, owner, &st)
	w.Tenant = tenant
	return w, nil
}

// WriteUpstreams writes upstreams and their quotas as tables.
func WriteUpstreams(out io.Writer, list []api.Upstream) {
	if len(list) == 0 {
		Printf(out, "there are no upstreams\n")
	}
	for i := range list {
		u := &list[i]
		if i > 0 {
			Printf(out, "\n")
		}
		Printf(out, "upstream %s\n", UpstreamLine(u))
		if u.Calls != nil {
			for k := range u.Calls.Circuits {
				Printf(out, "%s\n", CircuitLine(&u.Calls.Circuits[k]))
			}
		}
		t := tabwriter.NewWriter(out, 0, 8, 2, ' ', 0)
		_, _ = fmt.Fprintln(t, "MODELS\tPOLICY\tLIMIT\tUNIT\tUSED\tMOST\tLEFT\tHELD\tRESETS")
		for k := range u.Quotas {
			writeQuota(t, &u.Quotas[k])
		}
		_ = t.Flush() // nothing can be done if the output is closed
		for k := range u.Quotas {
			writeNotes(out, &u.Quotas[k])
		}
	}
}

// UpstreamLine describes an upstream and its circuit in one line.
func UpstreamLine(u *api.Upstream) string {
	return fmt.Sprintf("%s (%s), owner %s", u.Name, u.Provider, u.Owner) + callsLine(u.Calls)
}

// callsLine says in words what a process does with an upstream, or "" if that is not known.
func callsLine(c *api.Calls) string {
	if c == nil {
		return ""
	}
	text := ": circuit " + c.Circuit + tryIn(c.RetryAfterMS)
	return text + fmt.Sprintf(", %s under way, %d waiting", Count(c.UnderWay, "call"), c.Waiting)
}

func tryIn(wait api.Millis) string {
	if wait <= 0 {
		return ""
	}
	return ", a call may try in " + Duration(wait.Duration().Round(time.Millisecond))
}

// CircuitLine describes a circuit that is not closed in one line.
func CircuitLine(k *api.Circuit) string {
	text := "connections"
	if k.Model != "" {
		text = "calls of " + k.Model
	}
	if k.Caller != "" {
		text += " by " + k.Caller
	}
	return text + ": circuit " + k.State + tryIn(k.RetryAfterMS)
}

// writeQuota writes a line for each limit.
func writeQuota(t io.Writer, q *api.Quota) {
	models, policy := Escape(strings.Join(q.Models, " "), ""), Escape(q.Policy, "")
	if q.Status == nil {
		_, _ = fmt.Fprintf(t, "%s\t%s\t?\n", models, policy)
		return
	}
	for i := range q.Status.Limits {
		l := &q.Status.Limits[i]
		if i > 0 {
			models, policy = "", ""
		}
		_, _ = fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%d\t%d\t%d\t%d\t%s\n",
			models, policy, Escape(l.Name, ""), Escape(l.Unit, ""), l.Used, l.Most, l.Remaining, l.Held,
			Until(l.ResetAt, q.Status.At))
	}
}

// writeNotes writes what the table does not show.
func writeNotes(out io.Writer, q *api.Quota) {
	if q.Error != nil {
		Printf(out, "policy %s: %s\n", q.Policy, q.Error.Detail)
	}
	if line := PauseLine(q.Status); line != "" {
		Printf(out, "policy %s: %s\n", q.Policy, line)
	}
	if q.Status != nil && q.Status.Take.Fallback {
		Printf(out, "policy %s: the store cannot be reached: these are the numbers of the server's own share\n",
			q.Policy)
	}
}
