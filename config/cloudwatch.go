package config

import (
	"context"
	"os"
	"time"

	"github.com/drawgate/drawgate/outbound"
	"github.com/drawgate/drawgate/store/dynamostore"
	"github.com/drawgate/drawgate/store/guard"
	"github.com/drawgate/drawgate/telemetry/cloudwatch"
)

// CloudWatch configures the metrics of Amazon CloudWatch. There are none if neither EMF nor Put is
// set.
type CloudWatch struct {
	Namespace string        // "" means Drawgate
	EMF       bool          // lines in the embedded metric format on the standard output
	Put       bool          // PutMetricData, with the credentials that AWS's own tools would use
	Interval  time.Duration // how often metrics are reported; 0 means a minute
	Region    string        // for Put; "" means what the environment or the shared configuration of AWS says
	Endpoint  string        // for Put; "" means AWS itself
}

// longestReport is how long an interval between reports may be at most.
const longestReport = time.Hour

var cloudWatchSection = &section[CloudWatch]{
	name: "cloudWatch", what: "cloudwatch", settings: (*CloudWatch).settings,
	more: schema{"anyOf": need("emf", "put")},
	check: func(d *decoder, e entry, w *CloudWatch, _ map[string]bool, wrong bool) {
		switch {
		case wrong:
		case w.EMF == w.Put:
			d.missing(spanOf(e.value), "such as {emf: true}; with both, CloudWatch would count everything twice",
				"cloudwatch needs either emf or put")
		case !w.Put && (w.Region != "" || w.Endpoint != ""):
			d.problem(spanOf(e.value), "leave them out, or add put: true",
				"cloudwatch uses region and endpoint with put only")
		}
	},
}

func (w *CloudWatch) settings() []setting {
	name := textBy((*decoder).namespace, schema{"pattern": "^[0-9A-Za-z._/#-][0-9A-Za-z._/#:-]{0,254}$"})
	region := func(d *decoder, e entry) string {
		return d.region(e, "without it AWS_REGION or AWS's own configuration is used")
	}
	return []setting{
		{
			"namespace", bounded(name, "255 characters; not `AWS/…`").to(&w.Namespace), "`Drawgate`",
			"the namespace of the metrics",
		},
		{"emf", asFlag.to(&w.EMF), no, "write lines in the embedded metric format to the standard output, from where " +
			"AWS Lambda, Fargate and the agents of CloudWatch take them"},
		{"put", asFlag.to(&w.Put), no, "send `PutMetricData`, with the credentials that AWS's own tools would use " +
			"(variables, profiles, roles). They need the permission `cloudwatch:PutMetricData`"},
		{"interval", between(time.Second, longestReport).to(&w.Interval), "1m", "how often metrics are reported"},
		{
			"region", textBy(region, matching(regions)).to(&w.Region),
			"what `AWS_REGION` or AWS's shared configuration says, not the store's URL; without any `serve` does not " +
				"start",
			"with `put`: the region",
		},
		{"endpoint", endpointOf("monitoring").to(&w.Endpoint), "", "with `put`: another address than that of AWS"},
	}
}

func (d *decoder) namespace(e entry) string {
	text, ok := d.text(e)
	if err := cloudwatch.CheckNamespace(text); ok && err != nil {
		d.problem(spanOf(e.value), "such as Drawgate",
			"namespace must have 1 to 255 letters, digits and . _ / # : -, and not begin with a colon or with AWS/")
	}
	return text
}

// closeTime is how long a program that ends waits for CloudWatch.
const closeTime = 5 * time.Second

// openCloudWatch makes the metrics of CloudWatch, if they are configured: before the store, so that
// its observer can report to them.
func (r *Runtime) openCloudWatch(ctx context.Context, c *CloudWatch) error {
	if !c.EMF && !c.Put {
		return nil
	}
	o := &cloudwatch.Options{Namespace: c.Namespace, Interval: c.Interval, Logger: r.opts.Logger}
	if c.EMF {
		o.EMF = r.opts.EMF
		if o.EMF == nil {
			o.EMF = os.Stdout
		}
	}
	if c.Put {
		client, err := cloudwatch.Client(ctx, c.Region, c.Endpoint)
		if err != nil {
			return err
		}
		o.Put = client
	}
	m, err := cloudwatch.New(o) //nolint:contextcheck // it lives longer than the opening
	if err != nil {
		return err
	}
	r.CloudWatch = m
	r.flushers = append(r.flushers, m.Flush)
	r.closers = append(r.closers, func() error { //nolint:contextcheck // as above
		ctx, cancel := context.WithTimeout(context.Background(), closeTime)
		defer cancel()
		return m.Close(ctx)
	})
	return nil
}

// The observers of CloudWatch's metrics; nil without them. A nil pointer costs nothing where
// several are joined.

func (r *Runtime) cloudWatchGuard() *guard.Observer {
	if r.CloudWatch == nil {
		return nil
	}
	return r.CloudWatch.Guard()
}

func (r *Runtime) cloudWatchOutbound() *outbound.Observer {
	if r.CloudWatch == nil {
		return nil
	}
	return r.CloudWatch.Outbound()
}

func (r *Runtime) cloudWatchStore() *dynamostore.Observer {
	if r.CloudWatch == nil {
		return nil
	}
	return r.CloudWatch.Store()
}
