// Package incident records calls that an upstream refused for its quota although our limits had
// allowed them: what an operator needs to know to find out why.
//
//	rec := incident.New(&incident.Options{File: "incidents.jsonl", Logger: logger})
//	defer rec.Close()
//	calls := outbound.New(quota, &outbound.Options{Upstream: "openai", Observer: rec.Observer()})
//
// A [Recorder] remembers the recent calls to each upstream. When one is refused it makes an
// [api.Incident] of what it remembers, with what was left of each limit and what the numbers show.
// It logs the incident at once, reports it ([Options.Report]), and appends it to a file, which
// [Read] reads. No caller waits for any of this. Package telemetry/snsnotify tells operators.
//
// Many refusals at once are one incident with a count: refusals of the same upstream and model, of
// the same meaning, of calls that were granted before the quota reopened, or within 5 minutes after
// the first refusal.
//
// A limit on calls or tokens that refuses is an error; see [api.SeverityError]. Money that has run
// out, and a model that is not offered, are warnings: our limits are not the reason. An overload is
// no incident, and neither is a call that is larger than a limit.
package incident
