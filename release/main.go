// Command release makes what a release of Drawgate consists of, in one folder: programs, archives,
// Debian and RPM packages, wheels for Python, images for containers, lists of what is linked in,
// the licences of that, and checksums. It needs Go and git, and reaches no network once Go has the
// modules. Two runs on the same commit with the same Go write the same bytes, wherever they run.
//
//	release [-root DIRECTORY] [-out DIRECTORY] [-version VERSION] [-targets LIST] [-download URL]
package main

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// nextVersion is the version of what is built from a commit that has no other.
const nextVersion = "0.1.0"

// target is a platform that the program is built for.
type target struct{ os, arch string }

func (t target) String() string { return t.os + "/" + t.arch }

// all are the platforms of a release.
var all = []target{
	{"linux", "amd64"},
	{"linux", "arm64"},
	{"darwin", "amd64"},
	{"darwin", "arm64"},
	{"windows", "amd64"},
	{"windows", "arm64"},
}

// release is a release that is being made.
type release struct {
	root     string   // of the repository
	out      string   // what is made is in here
	targets  []target // in the order of all
	version  string
	commit   string    // that it is built from
	changed  bool      // the folder has something else than the commit
	time     time.Time // of the commit, and of all files
	tags     string    // of the build, separated by commas
	ldflags  string
	download string // the address of the folder that will have the files; "": nobody knows yet

	docs    *docs
	modules []*module // of all targets
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	r, err := parse(os.Args[1:])
	if err == nil {
		err = r.make(ctx)
	}
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

// parse returns the release that the arguments describe.
func parse(args []string) (*release, error) {
	r := &release{}
	targets := ""
	f := flag.NewFlagSet("release", flag.ExitOnError)
	f.StringVar(&r.root, "root", "..", "`directory` of the repository")
	f.StringVar(&r.out, "out", "../dist", "`directory` to write to; it is created, or is empty")
	f.StringVar(&r.version, "version", "", "version of the release (default "+nextVersion+")")
	f.StringVar(&targets, "targets", "", "platforms, such as linux/amd64,darwin/arm64 (default all)")
	f.StringVar(&r.tags, "tags", "", "build tags")
	f.StringVar(&r.ldflags, "ldflags", "", "flags for the linker")
	f.StringVar(&r.download, "download", "", "`URL` of the folder that will have the files, for the Homebrew formula (default: no formula)")
	_ = f.Parse(args) // it exits
	if f.NArg() > 0 {
		return nil, fmt.Errorf("unexpected argument %q", f.Arg(0))
	}
	for name := range strings.SplitSeq(targets, ",") {
		if name != "" && !slices.ContainsFunc(all, func(t target) bool { return t.String() == name }) {
			return nil, fmt.Errorf("unknown target %q (have: %v)", name, all)
		}
	}
	for _, t := range all {
		if targets == "" || slices.Contains(strings.Split(targets, ","), t.String()) {
			r.targets = append(r.targets, t)
		}
	}
	r.version = cmp.Or(r.version, nextVersion)
	var err error
	if r.root, err = filepath.Abs(r.root); err != nil {
		return nil, err
	}
	r.out, err = filepath.Abs(r.out)
	return r, err
}

// make makes the release.
func (r *release) make(ctx context.Context) error {
	if found, err := os.ReadDir(r.out); err == nil && len(found) > 0 {
		return fmt.Errorf("%s is not empty: remove it, or choose another folder with -out", r.out)
	}
	if err := r.source(ctx); err != nil {
		return err
	}
	for _, t := range r.targets {
		if err := r.build(ctx, t); err != nil {
			return err
		}
	}
	if err := r.findModules(ctx); err != nil {
		return err
	}
	if err := r.write(ctx); err != nil {
		return err
	}
	if err := r.wheels(); err != nil {
		return err
	}
	return r.pack()
}

// pack makes everything of the programs and the documents.
func (r *release) pack() error {
	for _, write := range []func() error{r.archives, r.packages, r.images, r.boms, r.formula} {
		if err := write(); err != nil {
			return err
		}
	}
	return r.checksums()
}

// source finds out what is built: the commit and its time. SOURCE_DATE_EPOCH replaces the time, as
// in other builds that can be repeated.
func (r *release) source(ctx context.Context) error {
	out, err := r.git(ctx, "log", "-1", "--format=%H %ct")
	if err != nil {
		return err
	}
	commit, seconds, _ := strings.Cut(strings.TrimSpace(out), " ")
	if epoch := os.Getenv("SOURCE_DATE_EPOCH"); epoch != "" {
		seconds = epoch
	}
	n, err := strconv.ParseInt(seconds, 10, 64)
	if err != nil {
		return fmt.Errorf("the time of the commit: %w", err)
	}
	r.commit, r.time = commit, time.Unix(n, 0).UTC()
	changes, err := r.git(ctx, "status", "--porcelain")
	if r.changed = changes != ""; r.changed {
		fmt.Fprintln(os.Stderr, "release: there are changes that are not committed: this is for trying only")
	}
	return err
}

func (r *release) git(ctx context.Context, args ...string) (string, error) {
	return output(exec.CommandContext(ctx, "git", append([]string{"-C", r.root}, args...)...))
}

// output runs a command and returns what it prints.
func output(cmd *exec.Cmd) (string, error) {
	var errs strings.Builder
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s: %w\n%s", strings.Join(cmd.Args, " "), err, errs.String())
	}
	return string(out), nil
}

// program returns where the program of a target is.
func (r *release) program(t target) string {
	name := "drawgate"
	if t.os == "windows" {
		name += ".exe"
	}
	return filepath.Join(r.out, "bin", t.os+"_"+t.arch, name)
}

// build compiles the program for a target. The same source gives the same bytes: there is no path,
// no time and no state of a version control system in it, and nothing of the machine's settings.
func (r *release) build(ctx context.Context, t target) error {
	fmt.Fprintf(os.Stdout, "building %s\n", t)
	commit := r.commit[:12]
	if r.changed {
		commit += "+changes"
	}
	stamp := fmt.Sprintf(" -X main.releaseVersion=%s -X main.releaseCommit=%s", r.version, commit)
	_, err := output(r.golang(ctx, t, "build", "-trimpath", "-buildvcs=false", "-tags", r.tags,
		"-ldflags", strings.TrimSpace(r.ldflags+stamp), "-o", r.program(t), "./cmd/drawgate"))
	return err
}

// golang returns a command of Go for a target.
func (r *release) golang(ctx context.Context, t target, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = r.root
	cmd.Env = append(os.Environ(), "GOOS="+t.os, "GOARCH="+t.arch, "CGO_ENABLED=0", "GOAMD64=v1", "GOARM64=v8.0",
		"GOFLAGS=-mod=readonly", "GOWORK=off", "GOEXPERIMENT=", "GODEBUG=")
	return cmd
}
