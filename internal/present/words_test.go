package present_test

import (
	"testing"
	"time"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/internal/present"
)

func TestDuration(t *testing.T) {
	t.Parallel()
	for d, want := range map[time.Duration]string{
		0: "0ms", time.Microsecond: "1ms", 450 * time.Millisecond: "450ms", time.Second: "1s",
		12340 * time.Millisecond: "12.4s", 59950 * time.Millisecond: "1m",
		time.Minute: "1m", 61 * time.Second: "1m1s", time.Hour - time.Millisecond: "1h", time.Hour: "1h",
		3*time.Hour + 5*time.Minute: "3h5m",
		24 * time.Hour:              "1d", 24*time.Hour - time.Second: "1d", 148 * time.Hour: "6d4h",
		720 * time.Hour: "30d",
		drawgate.Never:  "more than a century",
	} {
		if got := present.Duration(d); got != want {
			t.Errorf("%v: got %q, want %q", int64(d), got, want)
		}
	}
}

func TestDescribeCountsInWords(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		l    drawgate.Limit
		want string
	}{
		{drawgate.Limit{Kind: drawgate.Rolling, Window: time.Minute, Amount: 1}, "1 request per rolling 1m"},
		{drawgate.Limit{Kind: drawgate.Rolling, Window: time.Minute, Amount: 2}, "2 requests per rolling 1m"},
		{drawgate.Limit{Kind: drawgate.Concurrency, Amount: 1, Unit: "input_tokens"}, "1 input_token held at once"},
		{drawgate.Limit{Kind: drawgate.Concurrency, Amount: 1, Unit: "gas"}, "1 gas held at once"},
	} {
		if got := present.Describe(&c.l); got != c.want {
			t.Errorf("got %q, want %q", got, c.want)
		}
	}
}
