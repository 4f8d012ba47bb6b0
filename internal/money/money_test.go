package money_test

import (
	"testing"

	"github.com/drawgate/drawgate/internal/money"
)

// TestText: money is written in its currency, to the millionth, and everything else as it is.
func TestText(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		n    int64
		unit string
		want string
	}{
		{0, "usd_micros", "0 usd"},
		{1, "usd_micros", "0.000001 usd"},
		{250_000, "usd_micros", "0.25 usd"},
		{-1_500_000, "eur_micros", "-1.5 eur"},
		{1_000_000_000_000, "usd_micros", "1000000 usd"},
		{10, "requests", "10 requests"},
		{10, "_micros", "10 _micros"},
		{10, "micros", "10 micros"},
	} {
		if got := money.Text(c.n, c.unit); got != c.want {
			t.Errorf("%d %s: got %q, want %q", c.n, c.unit, got, c.want)
		}
	}
}
