package config

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/drawgate/drawgate/api"
	"github.com/drawgate/drawgate/internal/pattern"
	"github.com/drawgate/drawgate/telemetry/snsnotify"
)

// Incidents configures what is kept of calls that an upstream refused although the limits had
// allowed them, and who is told.
type Incidents struct {
	File string // where they are appended; "" means [Config.IncidentsFile]'s default
	SNS  SNS
}

// SNS names a topic of Amazon SNS. Without a Topic there is none.
type SNS struct {
	Topic    string // the ARN of a standard topic
	Region   string // "" means the one in Topic
	Endpoint string // a URL; "" means AWS's public one
}

var incidentSection = &section[Incidents]{name: "incidents", what: "incidents", settings: (*Incidents).settings}

func (n *Incidents) settings() []setting {
	return []setting{
		{
			"file", asShort.to(&n.File),
			"the path of the SQLite store with the suffix `-incidents.jsonl`; with another store none",
			"the file that they are appended to, one line of JSON each. At 8 MiB it is renamed to have the suffix " +
				"`.1`, and replaces the one that has it",
		},
		{"sns", snsSection.to(&n.SNS), none, "the [topic of Amazon SNS](aws.md#alarms-and-messages) that each of " +
			"them is published to at once. Credentials come from where AWS's own tools look for them"},
	}
}

var snsSection = &section[SNS]{
	name: "snsTopic", what: "sns", settings: (*SNS).settings,
	lacks: "sns needs topic: the ARN of the topic that incidents are published to",
	hint:  "such as {topic: \"" + exampleTopic + "\"}",
}

const exampleTopic = "arn:aws:sns:eu-central-1:123456789012:drawgate"

var regions = pattern.New(`^[a-z]{2}[a-z0-9-]{1,30}$`)

func (s *SNS) settings() []setting {
	arn := schema{"pattern": `^arn:aws[a-z-]{0,20}:sns:[a-z]{2}[a-z0-9-]{1,30}:[0-9]{12}:[A-Za-z0-9_-]{1,256}$`}
	region := func(d *decoder, e entry) string { return d.region(e, "without it the topic's own is used") }
	return []setting{
		{
			"topic", textBy((*decoder).topic, arn).to(&s.Topic), required,
			"the ARN of a standard topic, such as `" + exampleTopic + "`",
		},
		{"region", textBy(region, matching(regions)).to(&s.Region), "the one in the ARN", "the region that is asked"},
		{"endpoint", endpointOf("sns").to(&s.Endpoint), "AWS's public one", "another address of SNS, such as " +
			"`https://…` of a VPC endpoint"},
	}
}

// region reads the name of a region of AWS. without says what is used if it is left out.
func (d *decoder) region(e entry, without string) string {
	text, ok := d.text(e)
	if ok && !regions().MatchString(text) {
		d.problem(spanOf(e.value), "such as eu-central-1; "+without, "region %s is not the name of a region of AWS",
			shorten(text))
	}
	return text
}

func (d *decoder) topic(e entry) string {
	text, ok := d.text(e)
	if _, arn := snsnotify.RegionOf(text); ok && !arn {
		d.problem(spanOf(e.value), "such as "+exampleTopic, "topic %s is not the ARN of a standard SNS topic",
			shorten(text))
	}
	return text
}

func endpointOf(service string) form[string] {
	return textBy(func(d *decoder, e entry) string { return d.endpoint(e, service) }, httpURL)
}

// endpoint reads the URL of a service of AWS. It is shown, so it must not have a secret.
func (d *decoder) endpoint(e entry, service string) string {
	text, ok := d.text(e)
	if ok && !isPlainURL(text) {
		d.hideValue(e.value)
		d.problem(spanOf(e.value), "such as https://vpce-1-2."+service+".eu-central-1.vpce.amazonaws.com",
			"endpoint is not an http or https URL without user, query and fragment")
	}
	return text
}

// besideStore is what the name of the default file has in addition to that of the database.
const besideStore = "-incidents.jsonl"

// IncidentsFile returns where incidents are appended: the configured file, or else one beside the
// SQLite database that is the store. "" means that they are in the log, and in memory, only.
func (c *Config) IncidentsFile() string {
	if c.Gateway.Incidents.File != "" {
		return c.Gateway.Incidents.File
	}
	if path, ok := SQLitePath(c.Store); ok {
		return path + besideStore
	}
	return ""
}

// publish sets up the SNS topic of incidents.
func (r *Runtime) publish(ctx context.Context, c *Config) error {
	s := &c.Gateway.Incidents.SNS
	if s.Topic == "" {
		return nil
	}
	o := &snsnotify.Options{Logger: r.opts.Logger}
	if r.Metrics != nil {
		o.Ended = func(result snsnotify.Result) { r.Metrics.Published(string(result)) }
	}
	n, err := snsnotify.Open(ctx, snsnotify.Topic{ARN: s.Topic, Region: s.Region, Endpoint: s.Endpoint}, o)
	if err != nil {
		return fmt.Errorf("config: gateway.incidents.sns: %w", err)
	}
	r.sns = n
	r.closers = append(r.closers, r.aside(n.Close))
	r.flushers = append(r.flushers, n.Flush)
	return nil
}

// Incident passes an incident on to the webhook and the SNS topic, if there are any: for the option
// Report of package incident, which has logged it. It never waits.
func (r *Runtime) Incident(i *api.Incident) {
	r.warner.Incident(i)
	if r.sns != nil {
		r.sns.Notify(i)
	}
}

// Flush waits until the incidents that [Runtime.Incident] was given are sent to SNS and to the
// webhook, the webhook's other warnings too, and the metrics to CloudWatch, or ctx ends: for AWS
// Lambda, which stops a process between two calls. All are sent at the same time. Call Flush of the
// [incident.Recorder] first. The error says what could not be sent, or it is ctx's.
//
// [incident.Recorder]: https://pkg.go.dev/github.com/drawgate/drawgate/incident#Recorder
func (r *Runtime) Flush(ctx context.Context) error {
	var all sync.WaitGroup
	errs := make([]error, len(r.flushers))
	for i, flush := range r.flushers {
		all.Go(func() { errs[i] = flush(ctx) })
	}
	all.Wait()
	return errors.Join(errs...)
}
