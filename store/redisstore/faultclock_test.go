package redisstore_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// shifted returns a copy of this test binary whose clock is ahead of the machine's.
func shifted(t *testing.T, by time.Duration) string {
	t.Helper()
	return withClock(t, fmt.Sprintf("\tsec += %d\n", int64(by.Seconds())))
}

// jumping returns a copy of this test binary whose clock is an hour ahead of the machine's, and an
// hour behind it, in turn: it jumps every five seconds. Its monotonic clock does not.
func jumping(t *testing.T) string {
	t.Helper()
	return withClock(t, `	if mono != 0 && (mono-startNano)/5e9%2 == 0 {
		sec += 3600
	} else {
		sec -= 3600
	}
`)
}

// withClock returns a copy of this test binary that changes the seconds that it reads from the
// clock. It is compiled with another version of package time: a program in Go asks the kernel for
// the time itself, so libfaketime cannot give it another one.
func withClock(t *testing.T, change string) string {
	t.Helper()
	root, err := exec.CommandContext(t.Context(), "go", "env", "GOROOT").Output()
	if err != nil {
		t.Fatal(err)
	}
	source := filepath.Join(strings.TrimSpace(string(root)), "src", "time", "time.go")
	text, err := os.ReadFile(source)
	if err != nil {
		t.Fatal(err)
	}
	const line = "	sec, nsec, mono := runtimeNow()\n"
	if strings.Count(string(text), line) < 1 {
		t.Fatalf("%s reads the clock in another way", source)
	}
	dir := t.TempDir()
	changed := filepath.Join(dir, "time.go")
	other := strings.ReplaceAll(string(text), line, line+change)
	if err := os.WriteFile(changed, []byte(other), 0o600); err != nil {
		t.Fatal(err)
	}
	overlay := filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(overlay, fmt.Appendf(nil, `{"Replace": {%q: %q}}`, source, changed), 0o600); err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(dir, "shifted.test")
	if out, err := exec.CommandContext(t.Context(), "go", "test", "-c", "-overlay", overlay, "-o", program,
		".").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return program
}
