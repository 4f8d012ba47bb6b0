package config

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"sync"

	"github.com/drawgate/drawgate/api"
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

func (n *Incidents) settings(d *decoder) []setting {
	return []setting{
		{"file", func(e entry) { n.File = d.short(e) }, textNode(n.File)},
		{"sns", func(e entry) { n.SNS = d.sns(e) }, settingsNode(n.SNS.settings(d))},
	}
}

func (d *decoder) sns(e entry) (s SNS) {
	before := len(d.problems)
	if seen := d.settings(e.value, "sns", "", s.settings(d)); !seen["topic"] && len(d.problems) == before {
		d.missing(spanOf(e.value), "such as {topic: \""+exampleTopic+"\"}", "sns needs topic: the ARN of the topic that incidents are published to")
	}
	return s
}

const exampleTopic = "arn:aws:sns:eu-central-1:123456789012:drawgate"

var regions = regexp.MustCompile(`^[a-z]{2}[a-z0-9-]{1,30}$`)

func (s *SNS) settings(d *decoder) []setting {
	return []setting{
		{"topic", func(e entry) { s.Topic = d.topic(e) }, textNode(s.Topic)},
		{"region", func(e entry) { s.Region = d.region(e, "without it the topic's own is used") }, textNode(s.Region)},
		{"endpoint", func(e entry) { s.Endpoint = d.endpoint(e, "sns") }, textNode(s.Endpoint)},
	}
}

// region reads the name of a region of AWS. without says what is used if it is left out.
func (d *decoder) region(e entry, without string) string {
	text, ok := d.text(e)
	if ok && !regions.MatchString(text) {
		d.problem(spanOf(e.value), "such as eu-central-1; "+without, "region %s is not the name of a region of AWS", shorten(text))
	}
	return text
}

func (d *decoder) topic(e entry) string {
	text, ok := d.text(e)
	if _, arn := snsnotify.RegionOf(text); ok && !arn {
		d.problem(spanOf(e.value), "such as "+exampleTopic, "topic %s is not the ARN of a standard SNS topic", shorten(text))
	}
	return text
}

// endpoint reads the URL of a service of AWS. It is shown, so it must not have a secret.
func (d *decoder) endpoint(e entry, service string) string {
	text, ok := d.text(e)
	if ok && !isPlainURL(text) {
		d.hideValue(e.value)
		d.problem(spanOf(e.value), "such as https://vpce-1-2."+service+".eu-central-1.vpce.amazonaws.com", "endpoint is not an http or https URL without user, query and fragment")
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
