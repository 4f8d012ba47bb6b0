package telemetry_test

import (
	"bytes"
	"log/slog"
	"testing"
	"time"

	"github.com/drawgate/drawgate/api"
	"github.com/drawgate/drawgate/telemetry"
)

// An incident reaches the sinks as it is; the log leaves it out, because its maker has logged it.
func TestIncidentReachesTheSinks(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	var got []*telemetry.Warning
	w := telemetry.NewWarner(nil, telemetry.Log(slog.New(slog.NewTextHandler(&log, nil))), func(w *telemetry.Warning) { got = append(got, w) })
	in := &api.Incident{ID: "one", At: time.Now(), Summary: "refused"}
	w.Incident(in)
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if len(got) != 1 || got[0].Kind != telemetry.Incident || got[0].Incident != in || got[0].Message() != "refused" || !got[0].At.Equal(in.At) || log.Len() > 0 {
		t.Errorf("got %+v; log: %s", got, &log)
	}
}
