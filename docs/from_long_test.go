//go:build unix && long

package docs_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/drawgate/drawgate/internal/redistest"
)

// ratelimitServer is the program of the page.
const ratelimitServer = "github.com/envoyproxy/ratelimit/src/service_cmd@v1.4.1-0.20260122083618-3fb702589d36"

// envoyproxy/ratelimit itself does the same with the file of the page. Only "make long" compiles
// it.
func TestFromEnvoyproxyRatelimitBefore(t *testing.T) {
	t.Parallel()
	r := newReader(t)
	cmd := exec.CommandContext(t.Context(), "go", "install", ratelimitServer)
	cmd.Env, cmd.Dir = append(os.Environ(), "GOBIN="+r.dir), r.dir
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	before, _ := yamls(t, "from/envoyproxy-ratelimit.md")
	if err := os.MkdirAll(filepath.Join(r.dir, "config"), 0o700); err != nil {
		t.Fatal(err)
	}
	r.save("config/limits.yaml", strings.Replace(before, "unit: second", "unit: year", 1))
	r.env = append(r.env, "RUNTIME_ROOT="+r.dir, "RUNTIME_WATCH_ROOT=false", "USE_STATSD=false",
		"REDIS_SOCKET_TYPE=tcp", "REDIS_URL="+redistest.Start(t).Addr,
		"HOST=127.0.0.1", "GRPC_HOST=127.0.0.1", "DEBUG_HOST=127.0.0.1",
		"PORT="+r.ports["7878"], "DEBUG_PORT="+r.ports["7879"], "GRPC_PORT="+r.ports["7880"])
	r.open(step{"./service_cmd", nil})
	admitsFifty(t, r.ports["7880"])
}
