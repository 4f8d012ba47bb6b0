package cloudwatch_test

import (
	"slices"
	"testing"
	"time"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/telemetry/cloudwatch"
)

// The unit and the window decide what a limit is called, not its kind or its name.
//
// req: A13
func TestBucketType(t *testing.T) {
	t.Parallel()
	const day = 24 * time.Hour
	for _, c := range []struct {
		limits []drawgate.Limit
		want   []string
	}{
		{
			[]drawgate.Limit{
				drawgate.RollingLimit("a", 5, time.Minute),
				drawgate.RollingLimit("b", 5, time.Minute).Of("tokens"), drawgate.RollingLimit("c", 5, day),
			},
			[]string{"RPM", "TPM", "RPD"},
		},
		{
			[]drawgate.Limit{
				drawgate.BucketLimit("a", 5, time.Minute, 9),
				drawgate.BucketLimit("b", 5, time.Minute, 0).Of("tokens"), drawgate.BucketLimit("c", 5, day, 0),
			},
			[]string{"RPM", "TPM", "RPD"},
		},
		{[]drawgate.Limit{
			drawgate.CalendarLimit("a", 5, drawgate.Minute, ""),
			drawgate.CalendarLimit("c", 5, drawgate.Day, "Asia/Tokyo"),
		}, []string{"RPM", "RPD"}},
		{[]drawgate.Limit{
			drawgate.RollingLimit("rpm", 5, time.Minute).Of("requests"),
			drawgate.BucketLimit("smooth", 5, time.Minute, 0),
		}, []string{"RPM", "smooth"}},
		{[]drawgate.Limit{
			drawgate.RollingLimit("tpd", 5, day).Of("tokens"),
			drawgate.RollingLimit("in", 5, time.Minute).Of("input_tokens"),
		}, []string{"tpd", "TPM"}},
		{[]drawgate.Limit{
			drawgate.RollingLimit("in", 5, time.Minute).Of("input_tokens"),
			drawgate.RollingLimit("out", 5, time.Minute).Of("output_tokens"),
			drawgate.RollingLimit("both", 5, time.Minute).Of("tokens"),
		}, []string{"TPM", "out", "both"}},
		{[]drawgate.Limit{
			drawgate.RollingLimit("rps", 5, time.Second), drawgate.ConcurrencyLimit("slots", 3),
			drawgate.CalendarLimit("usd", 5, drawgate.Month, "").Of("usd_micros"),
		}, []string{"rps", "slots", "usd"}},
	} {
		p := drawgate.Policy{Name: "p", Limits: c.limits}
		if _, err := p.Compile(); err != nil {
			t.Fatal(err)
		}
		var got []string
		for i := range c.limits {
			got = append(got, cloudwatch.BucketType(&p, i))
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%+v: got %v, want %v", c.limits, got, c.want)
		}
	}
}
