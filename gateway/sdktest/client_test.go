package sdktest_test

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/drawgate/drawgate/internal/needs"
)

// The operations that the SDKs are used for.
const (
	chat      = "chat"      // OpenAI, chat completions
	responses = "responses" // OpenAI
	messages  = "messages"  // Anthropic
	generate  = "generate"  // Gemini, generateContent
)

// job is one call that an SDK makes.
type job struct {
	URL    string `json:"url"` // the gateway's, with the upstream's name
	Key    string `json:"key"` // the virtual key
	Model  string `json:"model"`
	Prompt string `json:"prompt"`
	Max    int    `json:"max"` // tokens of the answer
	Stream bool   `json:"stream"`
	Leave  int    `json:"leave"` // stop reading a stream after so many pieces; 0: never
}

// result is what became of a call, as a program that uses the SDK sees it.
type result struct {
	Text   string   `json:"text"`
	Pieces int      `json:"pieces"` // of a stream
	Input  int64    `json:"input"`  // tokens, as the SDK says
	Output int64    `json:"output"`
	Error  *failure `json:"error"`
}

// failure is an error of an SDK.
type failure struct {
	Type    string  `json:"type"` // its class
	Message string  `json:"message"`
	Status  int     `json:"status"` // HTTP; 0 if it has none
	Code    string  `json:"code"`   // the provider's, as far as the class has one
	After   float64 `json:"after"`  // when to try again, in seconds; 0 if it does not say
}

// client makes calls with one SDK.
type client interface {
	call(ctx context.Context, j *job) (*result, error)
}

// process is a program in testdata that makes calls: one line of JSON for each.
type process struct {
	in  io.Writer
	out *bufio.Reader
}

// call implements client.
func (p *process) call(_ context.Context, j *job) (*result, error) {
	text, err := json.Marshal(j)
	if err != nil {
		return nil, err
	}
	if _, err := p.in.Write(append(text, '\n')); err != nil {
		return nil, err
	}
	line, err := p.out.ReadBytes('\n')
	if err != nil {
		return nil, err
	}
	r := &result{}
	return r, json.Unmarshal(line, r)
}

// start starts a program of make deps, which ends with the test.
func start(t *testing.T, program string, args ...string) *process {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), needs.Tool(t, program), args...)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Env = []string{"HOME=" + t.TempDir()} // no keys, proxies or settings of whoever runs the tests
	cmd.Stderr = t.Output()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		in.Close()
		cmd.Wait() // it is ended with the test's context if need be
	})
	return &process{in, bufio.NewReader(out)}
}

// python starts the SDK for Python.
func python(t *testing.T, operation string) client {
	t.Helper()
	return start(t, "sdk-python/bin/python", filepath.Join("testdata", "client.py"), operation)
}

// typescript starts the SDK for TypeScript.
func typescript(t *testing.T, operation string) client {
	t.Helper()
	return start(t, "node/bin/node", filepath.Join("testdata", "client.mjs"), needs.Tool(t, "sdk-node"), operation)
}
