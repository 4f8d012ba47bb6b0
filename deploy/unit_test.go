package deploy_test

import (
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/drawgate/drawgate/internal/needs"
)

// maxExposure is the most that "systemd-analyze security" may say of the packages' unit: 0 is best,
// 10 worst.
const maxExposure = 3.0

func TestUnitIsHardened(t *testing.T) {
	t.Parallel()
	analyze := needs.Program(t, "systemd-analyze")
	const unit = "../release/files/drawgate.service"
	out, err := exec.CommandContext(t.Context(), analyze, "security", "--offline=true", "--no-pager", "--threshold=100",
		unit).CombinedOutput()
	found := regexp.MustCompile(`Overall exposure level for drawgate.service: ([0-9.]+)`).FindSubmatch(out)
	if err != nil || found == nil {
		t.Fatalf("%v\n%s", err, out)
	}
	level, err := strconv.ParseFloat(string(found[1]), 64)
	if err != nil || level > maxExposure {
		t.Errorf("exposure level %s, want at most %g\n%s", found[1], maxExposure, out)
	}
	t.Logf("exposure level %s", found[1])
}

// A service that cannot start for a while, as when its address is taken, starts later: systemd does
// not give up after a number of starts.
func TestUnitNeverGivesUp(t *testing.T) {
	t.Parallel()
	unit, err := os.ReadFile("../release/files/drawgate.service")
	if err != nil {
		t.Fatal(err)
	}
	general, service, ok := strings.Cut(string(unit), "\n[Service]\n")
	if !ok || !strings.Contains(general, "\nStartLimitIntervalSec=0\n") { // elsewhere it has no effect
		t.Errorf("the section [Unit] limits the number of starts:\n%s", general)
	}
	if !strings.Contains(service, "\nRestart=on-failure\n") {
		t.Error("it does not start again")
	}
}
