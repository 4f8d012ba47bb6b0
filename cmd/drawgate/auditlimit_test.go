package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/audit"
	"github.com/drawgate/drawgate/internal/calendar"
)

// An audit can judge a limit of each calendar window.
func TestAuditJudgesEveryWindow(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "ledger-1.jsonl"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for u := calendar.Minute; u < calendar.End; u++ {
		l := drawgate.CalendarLimit("l", 1, drawgate.Every(u), "Europe/Berlin")
		out, ok, err := auditLimit(&l)
		if err != nil || !ok {
			t.Fatalf("per %v: %v, %v", u, ok, err)
		}
		quotas := []audit.Quota{{Name: "q", Limits: []audit.Limit{out}}}
		if _, err := audit.Replay(t.Context(), []string{dir}, quotas, nil); err != nil {
			t.Errorf("per %v: %v", u, err)
		}
	}
}
