package telemetry_test

import (
	"bytes"
	"log/slog"
	"testing"
	"time"

	"github.com/drawgate/drawgate/api"
	"github.com/drawgate/drawgate/telemetry"
)

// Messages to SNS are counted by their results; a result that is not known is ignored.
func TestPublished(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	for _, result := range []string{"delivered", "delivered", "retried", "rejected", "gave_up", "dropped", "other"} {
		r.m.Published(result)
	}
	for result, want := range map[string]float64{
		"delivered": 2, "retried": 1, "rejected": 1, "gave_up": 1,
		"dropped": 1,
	} {
		r.want(want, "drawgate_sns_messages_total", "result", result)
	}
	r.none("drawgate_sns_messages_total", "result", "other")
}

// An incident reaches the sinks as it is; the log leaves it out, because its maker has logged it.
func TestIncidentReachesTheSinks(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	var got []*telemetry.Warning
	w := telemetry.NewWarner(nil, telemetry.Log(slog.New(slog.NewTextHandler(&log, nil))),
		func(w *telemetry.Warning) { got = append(got, w) })
	in := &api.Incident{ID: "one", At: time.Now(), Summary: "refused"}
	w.Incident(in)
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if len(got) != 1 || got[0].Kind != telemetry.Incident || got[0].Incident != in || got[0].Message() != "refused" ||
		!got[0].At.Equal(in.At) || log.Len() > 0 {
		t.Errorf("got %+v; log: %s", got, &log)
	}
}
