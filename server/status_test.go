package server_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/api"
	"github.com/drawgate/drawgate/engine"
)

// req: B3
func TestStatusDescribesWithoutSpending(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) { // its day does not end meanwhile
		f := setup{config: engine.Config{Policies: enforced(drawgate.Policy{Name: "p", Limits: []drawgate.Limit{
			{Name: "b", Kind: drawgate.Bucket, Window: time.Hour, Amount: 10, Burst: 5},
			{
				Name: "d", Kind: drawgate.Calendar, Every: drawgate.Day, Amount: 100,
				Headroom: drawgate.Share{Percent: 20},
			},
		}})}}.inBubble(t)
		f.take(`{"key":"k"}`)
		f.take(`{"key":"k","hold_ms":60000}`)
		var first, again api.StatusAnswer
		f.do("GET", "/v1/status?key=k", "", &first)
		f.do("POST", "/v1/status", `{"key":"k","costs":{"requests":4}}`, &again)
		b, d := first.Limits[0], first.Limits[1]
		if b.Kind != "bucket" || b.Used != 2 || b.Remaining != 3 || b.Burst != 5 || b.WindowMS != 3_600_000 ||
			first.Open != 1 || first.At.IsZero() {
			t.Errorf("got %+v", first)
		}
		if d.Every != "day" || d.Zone != "UTC" || d.Most != 80 || d.Used != 2 || d.Remaining != 78 ||
			d.WindowEnd == nil || !d.WindowEnd.Equal(d.ResetAt) {
			t.Errorf("got %+v", d)
		}
		if again.Take.Allowed || again.Take.RefusedBy.Limit != "b" || again.Limits[0].Used != 2 || !first.Take.Allowed {
			t.Errorf("got %+v", again)
		}
		var never api.StatusAnswer
		f.do("POST", "/v1/status", `{"key":"k","costs":{"requests":6}}`, &never)
		if !never.Take.NeverFits {
			t.Errorf("got %+v", never.Take)
		}
	})
}
