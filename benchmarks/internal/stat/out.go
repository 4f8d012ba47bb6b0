package stat

import (
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"maps"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"
)

// Header says what a result file was measured with, and on what. It is the file's first line, or
// first lines in text.
type Header struct {
	Commit string `json:"commit"` // "-dirty": with changes that are not in it
	Go     string `json:"go"`
	CPU    string `json:"cpu"`
	Cores  int    `json:"cores"`
	Kernel string `json:"kernel"`
	Redis  string `json:"redis,omitempty"`
	// Postgres is the version of the server, and Settings are those that matter.
	Postgres string `json:"postgres,omitempty"`
	Settings string `json:"settings,omitempty"`
	At       string `json:"at"`
	Command  string `json:"command"`
}

// Row is one repetition of one cell: one JSON line.
type Row struct {
	Section string             `json:"section"`
	Name    string             `json:"name"`
	Case    string             `json:"case"`
	Rep     int                `json:"rep"`
	At      string             `json:"at"`
	M       map[string]float64 `json:"m"`
	Note    string             `json:"note,omitempty"`
}

// Out is a result file. What is written to it is shown on the standard output too.
type Out struct{ f *os.File }

// NewOut creates the file path, which must not exist, because a raw file holds one run. It writes
// the header: as JSON if path ends in .jsonl, otherwise as the "key: value" lines that benchstat
// reads. Each of edits may complete the header.
func NewOut(path string, edits ...func(*Header)) (*Out, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, err
	}
	o := &Out{f}
	h := newHeader()
	for _, edit := range edits {
		edit(&h)
	}
	if filepath.Ext(path) == ".jsonl" {
		return o, o.line(h)
	}
	_, err = fmt.Fprintf(f, "commit: %s\ngo: %s\ncpu: %s\ncores: %d\nkernel: %s\nat: %s\ncommand: %s\n", h.Commit, h.Go,
		h.CPU, h.Cores, h.Kernel, h.At, h.Command)
	return o, err
}

func (o *Out) line(v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	_, err = o.f.Write(append(b, '\n'))
	return err
}

// Text appends s as it is.
func (o *Out) Text(s string) error {
	_, err := io.WriteString(io.MultiWriter(os.Stdout, o.f), s)
	return err
}

// Put appends r, rounded to thousandths.
func (o *Out) Put(r Row) error {
	r.At = now()
	var b strings.Builder
	for k, v := range r.M {
		if math.IsNaN(v) || math.IsInf(v, 0) {
			delete(r.M, k)
			continue
		}
		r.M[k] = math.Round(v*1000) / 1000
	}
	for _, k := range slices.Sorted(maps.Keys(r.M)) {
		fmt.Fprintf(&b, " %s=%.4g", k, r.M[k])
	}
	fmt.Fprintf(os.Stdout, "%s %-24s %-16s #%d%s %s\n", r.Section, r.Name, r.Case, r.Rep, b.String(), r.Note)
	return o.line(r)
}

func now() string { return time.Now().UTC().Format(time.RFC3339) }

func newHeader() Header {
	h := Header{
		Commit: output("git", "describe", "--always", "--abbrev=12", "--exclude=*"),
		Go:     runtime.Version() + " " + runtime.GOOS + "/" + runtime.GOARCH,
		CPU:    cpuModel(), Cores: runtime.NumCPU(), Kernel: output("uname", "-r"), At: now(), Command: command(),
	}
	if output("git", "status", "--porcelain", "--", ":/", ":(exclude,top)benchmarks/results") != "" {
		h.Commit += "-dirty"
	}
	if v := output("redis-server", "--version"); v != "" {
		_, v, _ = strings.Cut(v, "v=")
		h.Redis, _, _ = strings.Cut(v, " ")
	}
	return h
}

// output is what a command prints, empty if it cannot be run.
func output(name string, args ...string) string {
	b, err := exec.Command(name, args...).Output()
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}

func cpuModel() string {
	b, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return ""
	}
	for l := range strings.Lines(string(b)) {
		if k, v, _ := strings.Cut(l, ":"); strings.TrimSpace(k) == "model name" {
			return strings.TrimSpace(v)
		}
	}
	return runtime.GOARCH
}

// command leaves out the paths of the machine.
func command() string {
	s := filepath.Base(os.Args[0])
	flag.Visit(func(f *flag.Flag) {
		if !slices.Contains([]string{"out", "dir", "bin", "summary"}, f.Name) {
			s += " -" + f.Name + "=" + f.Value.String()
		}
	})
	return s
}
