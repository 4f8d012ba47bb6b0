package main

import (
	"strconv"
	"strings"
	"testing"
)

// A reload checks with the secrets that the running server has: those that came later are not in
// force before a restart.
func TestValidateWithEnvironmentOfProcess(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	const policies = "store: \"memory:\"\npolicies:\n  api: {limits: [{name: rpd, rolling: 24h, amount: 2}]}\n"
	b.write("drawgate.yaml", policies)
	d := b.daemon()
	b.write("drawgate.yaml", policies+"server:\n  tokens: [{name: a, role: take, token_env: LATER}]\n")
	pid := strconv.Itoa(d.cmd.Process.Pid)
	validate := func(args ...string) (string, int) {
		t.Helper()
		cmd := b.command(append([]string{"validate", "drawgate.yaml"}, args...)...)
		cmd.Env = append(cmd.Env, "LATER=0123456789abcdef")
		out, _ := cmd.CombinedOutput()
		return string(out), cmd.ProcessState.ExitCode()
	}
	if out, code := validate(); code != exitOK {
		t.Errorf("with its own environment: %d\n%s", code, out)
	}
	if out, code := validate("--process", pid); code != exitConfig || !strings.Contains(out, "LATER") {
		t.Errorf("with the server's environment: %d\n%s", code, out)
	}
	b.write("drawgate.yaml", policies)
	if out, code := validate("--process", pid); code != exitOK {
		t.Errorf("with what the server has: %d\n%s", code, out)
	}
	if out, code := validate("--process", "0"); code == exitOK {
		t.Errorf("of no process: %d\n%s", code, out)
	}
}
