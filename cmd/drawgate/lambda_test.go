//go:build linux

package main

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/drawgate/drawgate/internal/lambdatest"
	"github.com/drawgate/drawgate/internal/redistest"
)

// extended is the program as an extension of AWS Lambda.
type extended struct {
	*daemon
	api *lambdatest.API
	out *syncBuffer
}

// extension starts the program as Lambda does: without arguments, by its path in the folder of
// extensions.
func (b bench) extension() *extended {
	b.t.Helper()
	program, err := exec.LookPath("drawgate")
	if err != nil {
		b.t.Fatal(err)
	}
	folder := filepath.Join(b.dir, "extensions")
	if err := os.MkdirAll(folder, 0o700); err != nil {
		b.t.Fatal(err)
	}
	// The test binary looks at its name to know what it is.
	path := filepath.Join(folder, "drawgate")
	if err := os.Symlink(program, path); err != nil {
		b.t.Fatal(err)
	}
	x := &extended{api: lambdatest.NewAPI(b.t), out: &syncBuffer{}}
	cmd := exec.CommandContext(b.t.Context(), path)
	cmd.Dir, cmd.Env = b.dir, slices.Concat(b.env, []string{"AWS_LAMBDA_RUNTIME_API=" + x.api.Addr})
	cmd.Stdout = x.out
	x.daemon = b.begin(cmd)
	return x
}

// registers waits until the extension has registered.
func (x *extended) registers() {
	x.t.Helper()
	select {
	case name := <-x.api.Registered:
		if name != "drawgate" {
			x.t.Errorf("it registers as %q, want the name of its file", name)
		}
	case <-x.done:
		x.t.Fatalf("it has ended: %s", x.log)
	}
}

// lambdaFile is a configuration of an extension.
const lambdaFile = `
store: 'memory:'
policies: {api: {limits: [{name: rpd, rolling: 24h, amount: 10}]}}
telemetry: {cloudwatch: {emf: true, interval: 1h}}
server: {admin: off, listen: `

// The extension listens by the time that it registers, because the function may take from then on.
// What an invocation left is reported when the next one begins, before the extension asks for
// another event, or when the environment ends.
//
// req: A13
func TestExtension(t *testing.T) {
	t.Parallel()
	addr := redistest.FreeAddr(t)
	b := newBench(t, "DRAWGATE_CONFIG=drawgate.yaml")
	b.write("drawgate.yaml", lambdaFile+addr+"}\n")
	x := b.extension()
	x.registers()
	takes := func() {
		t.Helper()
		if r := x.must("http://"+addr+"/v1/take", take("api", "k")); r.code != http.StatusOK {
			t.Errorf("got %d %s", r.code, r.body)
		}
	}
	takes() // while the function starts
	x.api.ExtensionRests()
	if out := x.out.String(); out != "" {
		t.Errorf("before the first event it writes %s", out)
	}
	takes()
	x.api.Event(time.Hour)
	x.api.ExtensionRests()
	x.out.await(t, `("RateLimiterTokensAcquired":2)`)
	takes()
	x.api.Shutdown()
	x.ended()
	x.out.await(t, `("RateLimiterTokensAcquired":1)`)
}

// Metrics that cannot be sent hold up neither an invocation nor the end.
func TestExtensionWithoutCloudWatch(t *testing.T) {
	t.Parallel()
	asked := make(chan struct{}, 100)
	silent := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // until then it would not notice that the client has gone
		asked <- struct{}{}
		<-r.Context().Done()
	}))
	t.Cleanup(silent.Close)
	addr := redistest.FreeAddr(t)
	b := newBench(t, "DRAWGATE_CONFIG=drawgate.yaml", "AWS_ACCESS_KEY_ID=test", "AWS_SECRET_ACCESS_KEY=test")
	b.write("drawgate.yaml", strings.Replace(lambdaFile, "emf: true",
		"put: true, region: us-east-1, endpoint: '"+silent.URL+"'", 1)+addr+"}\n")
	x := b.extension()
	x.registers()
	x.api.ExtensionRests()
	x.must("http://"+addr+"/v1/take", take("api", "k"))
	x.api.Event(time.Second)
	<-asked
	x.api.ExtensionRests()
	x.log.await(t, "(metrics, incidents or warnings were not sent)")
	x.api.Shutdown()
	x.ended()
}

// While SNS does not answer, metrics are sent all the same when Lambda ends the environment, and
// the extension ends.
//
// req: A13, A14
func TestExtensionWithoutSNS(t *testing.T) {
	t.Parallel()
	silent := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		<-r.Context().Done()
	}))
	t.Cleanup(silent.Close)
	put := make(chan string, 100)
	metrics := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		w.Header().Set("Smithy-Protocol", "rpc-v2-cbor")
		_, _ = w.Write([]byte{0xa0}) // an empty map
		put <- string(body)
	}))
	t.Cleanup(metrics.Close)
	provider := quotingProvider(t)
	b := newBench(t, "DRAWGATE_CONFIG=drawgate.yaml", "PROVIDER_KEY="+providerKey, "ALICE_KEY="+callerKey,
		"AWS_ACCESS_KEY_ID=test", "AWS_SECRET_ACCESS_KEY=test")
	text, _, _ := strings.Cut(fmt.Sprintf(quoting, provider, ""), "telemetry:")
	b.write("drawgate.yaml",
		text+fmt.Sprintf("  listen: 127.0.0.1:0\n  incidents: {sns: {topic: 'arn:aws:sns:eu-central-1:123456789012:drawgate', endpoint: %q}}\n"+
			"telemetry: {cloudwatch: {put: true, interval: 1h, region: us-east-1, endpoint: %q}}\nserver: {admin: off, listen: '127.0.0.1:0'}\n", silent.URL, metrics.URL))
	x := b.extension()
	x.registers()
	x.public = x.log.await(t, `gateway listening on (https?://[^"]+)`)
	x.api.ExtensionRests()
	refuse(t, x.daemon, provider)
	x.log.await(t, `(incident=\S+)`)
	x.api.Shutdown()
	if body := <-put; !strings.Contains(body, "RateLimiterProviderRefusals") {
		t.Errorf("the metrics are %q", body)
	}
	x.ended()
	x.log.await(t, `(not all incidents were sent yet)`)
}

// Why an extension does not start is in the log, and Lambda is told of it.
func TestExtensionThatCannotStart(t *testing.T) {
	t.Parallel()
	used, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = used.Close() })
	for name, c := range map[string]struct {
		file, env  string // file: "": there is none
		kind, says string
		code       int
	}{
		"a mistake": {
			lambdaFile + "7}\n", "DRAWGATE_CONFIG=drawgate.yaml", "Extension.ConfigInvalid",
			"drawgate.yaml:5", exitConfig,
		},
		"no file": {
			"", "DRAWGATE_CONFIG=drawgate.yaml", "Extension.ConfigInvalid", "no such file",
			exitConfig,
		},
		"no configuration": {
			"", "A=B", "Extension.ConfigInvalid",
			"set the function's variable DRAWGATE_CONFIG to a file such as /var/task/drawgate.yaml", exitConfig,
		},
		"no store": {
			"policies: {api: {limits: [{name: rpd, rolling: 24h, amount: 10}]}}\n",
			"DRAWGATE_CONFIG=drawgate.yaml", "Extension.ConfigInvalid", "no store is configured", exitConfig,
		},
		"a port in use": {
			lambdaFile + used.Addr().String() + "}\n", "DRAWGATE_CONFIG=drawgate.yaml",
			"Extension.Unavailable", "is in use", exitUnavailable,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, c.env)
			if c.file != "" {
				b.write("drawgate.yaml", c.file)
			}
			x := b.extension()
			x.registers()
			f := <-x.api.Failed
			x.killed = true // its exit code is not 0
			<-x.done
			if code := x.cmd.ProcessState.ExitCode(); code != c.code {
				t.Errorf("got exit code %d, want %d", code, c.code)
			}
			if f.Path != "init/error" || f.Type != c.kind || !strings.Contains(f.Message, c.says) ||
				!strings.Contains(x.log.String(), c.says) {
				t.Errorf("it reports %+v, want %s and %q; it says:\n%s", f, c.kind, c.says, x.log)
			}
		})
	}
}

// An extension that Lambda no longer answers ends, and says so.
func TestExtensionWithoutLambda(t *testing.T) {
	t.Parallel()
	addr := redistest.FreeAddr(t)
	b := newBench(t, "DRAWGATE_CONFIG=drawgate.yaml")
	b.write("drawgate.yaml", lambdaFile+addr+"}\n")
	x := b.extension()
	x.registers()
	x.api.ExtensionRests()
	x.api.Say("{")
	x.killed = true
	<-x.done
	if f := <-x.api.Failed; f.Path != "exit/error" || !strings.Contains(f.Message, "read an event") {
		t.Errorf("it reports %+v", f)
	}
	if code := x.cmd.ProcessState.ExitCode(); code != exitInternal {
		t.Errorf("got exit code %d", code)
	}
}

// Other programs with Lambda's variable are no extensions: those of the function, and those with
// arguments.
func TestNoExtension(t *testing.T) {
	t.Parallel()
	program, err := exec.LookPath("drawgate")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	folder := filepath.Join(dir, "extensions")
	if err := errors.Join(os.Mkdir(folder, 0o700), os.Symlink(program, filepath.Join(folder, "drawgate")),
		os.Symlink(program, filepath.Join(dir, "drawgate"))); err != nil {
		t.Fatal(err)
	}
	api := lambdatest.NewAPI(t) // whose tests fail if it is asked
	for _, args := range [][]string{{filepath.Join(dir, "drawgate")}, {filepath.Join(folder, "drawgate"), "help"}} {
		cmd := exec.CommandContext(t.Context(), args[0], args[1:]...)
		cmd.Env = append(os.Environ(), "AWS_LAMBDA_RUNTIME_API="+api.Addr)
		if out, err := cmd.Output(); err != nil || !strings.HasPrefix(string(out), "drawgate keeps") {
			t.Errorf("%v: got %v, %s", args, err, out)
		}
	}
	select {
	case <-api.Registered:
		t.Error("it has registered")
	default:
	}
}
