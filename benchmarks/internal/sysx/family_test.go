package sysx

import (
	"os"
	"os/exec"
	"testing"
	"time"
)

func TestProcStat(t *testing.T) {
	t.Parallel()
	const line = "4711 (a (b) c) S 42 4711 4711 0 -1 4194560 1 2 3 4 150 50 1000 200 20 0 1 0 9"
	want := procStat{parent: 42, own: 2 * time.Second, ended: 12 * time.Second}
	if got, err := parseProcStat(line); err != nil || got != want {
		t.Errorf("got %+v, %v, want %+v", got, err, want)
	}
	if got, err := parseProcStat("4711 (a) S 42"); err == nil {
		t.Errorf("got %+v of a line that is too short, want an error", got)
	}
}

// The CPU time of children counts while they run, and after they have ended.
func TestFamilyTimeHasChildren(t *testing.T) {
	cmd := exec.Command("sh", "-c", "i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done; echo; read x")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	before := familyTime(os.Getpid())
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := out.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	running := familyTime(os.Getpid())
	if running <= before {
		t.Errorf("got %v while a child runs, %v before: it used more than a tick", running, before)
	}
	_ = in.Close()
	_ = cmd.Wait()                                                              // read fails at the end of the input
	if ended := familyTime(os.Getpid()); ended < running-2*time.Second/userHz { // two values are rounded
		t.Errorf("got %v after the child has ended, %v while it ran", ended, running)
	}
}
