//go:build long && linux

package main

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/drawgate/drawgate/internal/needs"
)

// These tests need root, and install Debians of their own in folders: "make long" runs them.

// here is the platform of this machine.
var here = target{"linux", runtime.GOARCH}

// made makes a release for this machine once.
var made = sync.OnceValues(func() (*release, error) {
	r, err := parse([]string{
		"-targets", here.String(), "-out", filepath.Join(scratch, "dist"), "-tags", "grpcnotrace", "-ldflags=-s -w",
		"-download", "http://127.0.0.1/files",
	})
	if err != nil {
		return nil, err
	}
	return r, r.make(context.Background())
})

// older returns packages of an older version, with the same program.
func older(t *testing.T, r *release) *release {
	t.Helper()
	o := *r
	o.version, o.out = "0.0.9", t.TempDir()
	text, err := os.ReadFile(r.program(here))
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(put(o.program(here), text, 0o755), o.packages()); err != nil {
		t.Fatal(err)
	}
	return &o
}

// empty makes the smallest Debian once: what it takes to install packages and start services, and
// curl.
var empty = sync.OnceValues(func() (string, error) {
	dir := filepath.Join(scratch, "debian")
	cmd := exec.Command("debootstrap", "--variant=minbase", "--include=systemd,systemd-sysv,dbus,curl,man-db", "bookworm", dir)
	cmd.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive")
	_, err := output(cmd)
	return dir, err
})

// machine is a Debian in a folder, in which commands run as root.
type machine struct {
	t   *testing.T
	dir string
}

func newMachine(t *testing.T) *machine {
	t.Helper()
	if os.Getuid() != 0 {
		t.Fatal("this test needs root")
	}
	needs.Program(t, "debootstrap")
	base, err := empty()
	if err != nil {
		t.Fatal(err)
	}
	m := &machine{t, filepath.Join(t.TempDir(), "root")}
	if out, err := exec.Command("cp", "-a", base, m.dir).CombinedOutput(); err != nil {
		t.Fatalf("cp: %v\n%s", err, out)
	}
	// Whoever is root needs no sudo.
	m.write("/usr/local/bin/sudo", "#!/bin/sh\nexec \"$@\"\n", 0o755)
	m.write("/etc/apt/sources.list", "", 0o644) // nothing comes from elsewhere
	return m
}

func (m *machine) path(name string) string { return filepath.Join(m.dir, filepath.FromSlash(name)) }

func (m *machine) write(name, text string, mode fs.FileMode) {
	m.t.Helper()
	if err := errors.Join(put(m.path(name), []byte(text), mode), os.Chmod(m.path(name), mode)); err != nil {
		m.t.Fatal(err)
	}
}

func (m *machine) read(name string) string {
	m.t.Helper()
	text, err := os.ReadFile(m.path(name))
	if err != nil {
		m.t.Fatal(err)
	}
	return string(text)
}

// command returns a command in the machine, in the folder with the files of the release. It has a
// network of its own, in which there is nothing.
func (m *machine) command(line string) *exec.Cmd {
	cmd := exec.CommandContext(m.t.Context(), "unshare", "--net", "--mount", "--pid", "--fork", "--kill-child",
		"--mount-proc="+m.path("/proc"),
		"sh", "-c", `ip link set lo up && exec chroot "$0" /bin/sh -c "$1"`, m.dir, "cd /files; "+line)
	cmd.Env = []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root", "DEBIAN_FRONTEND=noninteractive", "LC_ALL=C.UTF-8"}
	return cmd
}

func (m *machine) run(line string) string {
	m.t.Helper()
	out, err := m.command(line).CombinedOutput()
	if err != nil {
		m.t.Fatalf("%s: %v\n%s", line, err, out)
	}
	return string(out)
}

// files puts the files of a release into the machine, as somebody who copied them has them.
func (m *machine) files(r *release) {
	m.t.Helper()
	if err := os.MkdirAll(m.path("/files"), 0o755); err != nil {
		m.t.Fatal(err)
	}
	entries, err := os.ReadDir(r.out)
	if err != nil {
		m.t.Fatal(err)
	}
	for _, e := range entries {
		if !e.IsDir() {
			text, err := os.ReadFile(filepath.Join(r.out, e.Name()))
			if err := errors.Join(err, put(m.path("/files/"+e.Name()), text, 0o644)); err != nil {
				m.t.Fatal(err)
			}
		}
	}
}

// lines returns the commands below a heading of the page on installing, each with the output that
// the page shows.
func lines(t *testing.T, heading string) (list [][2]string) {
	t.Helper()
	page, err := os.ReadFile("../docs/install.md")
	if err != nil {
		t.Fatal(err)
	}
	_, part, ok := strings.Cut(string(page), "\n"+heading+"\n")
	if !ok {
		t.Fatalf("the page has no heading %q", heading)
	}
	part, _, _ = strings.Cut(part, "\n## ")
	for _, block := range regexp.MustCompile("(?ms)^```sh\n(.*?)^```$").FindAllStringSubmatch(part, -1) {
		for line := range strings.Lines(block[1]) {
			line = strings.TrimSpace(line)
			if shown, ok := strings.CutPrefix(line, "# "); ok {
				list[len(list)-1][1] = shown
			} else if line != "" {
				list = append(list, [2]string{line, ""})
			}
		}
	}
	if len(list) == 0 {
		t.Fatalf("no commands below %q", heading)
	}
	return list
}

// shown reports whether a command printed what the page shows, where … stands for anything.
func shown(page, printed string) bool {
	parts := strings.Split(page, "…")
	for i := range parts {
		parts[i] = regexp.QuoteMeta(parts[i])
	}
	return regexp.MustCompile("(?m)^" + strings.Join(parts, ".*") + "$").MatchString(printed)
}

// follow runs commands of the page, up to one that begins with until.
func (m *machine) follow(list [][2]string, until string) {
	m.t.Helper()
	for _, l := range list {
		if until != "" && strings.HasPrefix(l[0], until) {
			return
		}
		line := strings.ReplaceAll(l[0], "amd64", runtime.GOARCH)
		if out := m.run(line); l[1] != "" && !shown(l[1], out) {
			m.t.Fatalf("%s\nprints\n%s\nthe page shows\n%s", line, out, l[1])
		}
	}
}

// serve starts the service's command as systemd would, without systemd, asks it, and stops it.
const serve = `set -e
unit=/usr/lib/systemd/system/drawgate.service
cd /var/lib/drawgate
DRAWGATE_CONFIG=/etc/drawgate/drawgate.yaml setpriv --reuid=drawgate --regid=drawgate --clear-groups $(sed -n 's/^ExecStart=//p' $unit) & pid=$!
for _ in $(seq 300); do curl --silent --fail http://127.0.0.1:7878/healthz >/dev/null && break; sleep 0.1; done
`

// From an empty root, the page's lines lead to a first decision.
func TestDebianToFirstDecision(t *testing.T) {
	r := releaseMade(t)
	m := newMachine(t)
	m.files(r)
	m.follow(lines(t, "## The files")[1:], "") // without make release: it was made
	list := lines(t, "## Debian and Ubuntu")
	m.follow(list, "curl")
	i := slices.IndexFunc(list, func(l [2]string) bool { return strings.HasPrefix(l[0], "curl") })
	out := m.run(serve + list[i][0] + "; kill $pid; wait $pid")
	if !shown(list[i][1], out) {
		t.Errorf("%s\nprints\n%s\nthe page shows\n%s", list[i][0], out, list[i][1])
	}
	for _, c := range []struct{ line, want string }{
		{"drawgate version", "drawgate " + r.version + " (go"},
		{"man --pager=cat drawgate-take", "DRAWGATE-TAKE(1)"},
		{"getent passwd drawgate", ":/var/lib/drawgate:/usr/sbin/nologin"},
		{"stat -c '%U %G %a' /var/lib/drawgate", "drawgate drawgate 750"},
		{"bash -c '. /usr/share/bash-completion/completions/drawgate && complete -p drawgate'", "drawgate"},
		{"drawgate validate /etc/drawgate/drawgate.yaml", "valid"},
	} {
		if out := m.run(c.line); !strings.Contains(out, c.want) {
			t.Errorf("%s: %q, want %q", c.line, out, c.want)
		}
	}
}

func releaseMade(t *testing.T) *release {
	t.Helper()
	r, err := made()
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// snapshot returns the names of all files of the machine, except where dpkg and apt keep books.
func (m *machine) snapshot() (list []string) {
	m.t.Helper()
	books := regexp.MustCompile(`^(proc|sys|dev|run|files|tmp|root|var/(lib/(dpkg|apt|systemd/deb-systemd-helper-enabled)|log|cache))(/|$)`)
	err := filepath.WalkDir(m.dir, func(path string, d fs.DirEntry, err error) error {
		name, relErr := filepath.Rel(m.dir, path)
		if err != nil || relErr != nil {
			return errors.Join(err, relErr)
		}
		if books.MatchString(name) {
			if d.IsDir() {
				return filepath.SkipDir
			}
			return nil
		}
		list = append(list, name)
		return nil
	})
	if err != nil {
		m.t.Fatal(err)
	}
	return list
}

var users = regexp.MustCompile(`^etc/(passwd|group|shadow|gshadow|subuid|subgid)-$`)

// The package upgrades, and is removed and purged without a trace.
func TestDebianLife(t *testing.T) {
	r := releaseMade(t)
	old := older(t, r)
	m := newMachine(t)
	m.files(r)
	m.files(old)
	before := m.snapshot()

	m.run("apt install -y ./drawgate_0.0.9-1_" + here.arch + ".deb")
	m.run("sed -i 's/amount: 10}/amount: 20}/' /etc/drawgate/drawgate.yaml")
	take := "curl -s -d '{\"policy\": \"sample\", \"key\": \"me\"}' localhost:7878/v1/take; kill $pid; wait $pid"
	if out := m.run(serve + take); !strings.Contains(out, `"remaining":19`) {
		t.Errorf("before the upgrade: %s", out)
	}
	m.run("apt install -y ./drawgate_" + r.version + "-1_" + here.arch + ".deb")
	if out := m.run("dpkg-query -W -f '${Version}' drawgate"); out != r.version+"-1" {
		t.Errorf("version %s is installed, want %s-1", out, r.version)
	}
	if out := m.run(serve + take); !strings.Contains(out, `"remaining":18`) {
		t.Errorf("after the upgrade: %s", out)
	}

	m.run("apt remove -y drawgate")
	if _, err := os.Stat(m.path("/usr/bin/drawgate")); err == nil {
		t.Error("the program is there after it was removed")
	}
	if !strings.Contains(m.read("/etc/drawgate/drawgate.yaml"), "amount: 20}") {
		t.Error("the configuration is not what it was")
	}
	if _, err := os.Stat(m.path("/var/lib/drawgate/drawgate.db")); err != nil {
		t.Errorf("the counts are gone: %v", err)
	}
	m.run("apt install -y ./drawgate_" + r.version + "-1_" + here.arch + ".deb")
	if out := m.run(serve + take); !strings.Contains(out, `"remaining":17`) {
		t.Errorf("installed again: %s", out)
	}

	m.run("apt purge -y drawgate")
	after := m.snapshot()
	for _, name := range after {
		// The user stays: no other one shall get its number. What has a dash is the file before a
		// change.
		if !slices.Contains(before, name) && !users.MatchString(name) {
			t.Errorf("left behind: %s", name)
		}
	}
	for _, name := range before {
		if !slices.Contains(after, name) {
			t.Errorf("taken along: %s", name)
		}
	}
	m.run("apt install -y ./drawgate_" + r.version + "-1_" + here.arch + ".deb")
	if out := m.run(serve + take); !strings.Contains(out, `"remaining":9`) {
		t.Errorf("installed after a purge: %s", out)
	}
}

// Lintian has nothing to say that the package does not explain.
func TestLintian(t *testing.T) {
	r := releaseMade(t)
	lintian := needs.Program(t, "lintian")
	out, err := exec.Command(lintian, "--allow-root", "--pedantic", "--display-info", "--fail-on", "error,warning",
		"--suppress-tags",
		"initial-upload-closes-no-bugs", // of Debian's archive only
		filepath.Join(r.out, "drawgate_"+r.version+"-1_"+here.arch+".deb")).CombinedOutput()
	t.Logf("lintian:\n%s", out)
	if err != nil {
		t.Error(err)
	}
}

// The RPM package installs, upgrades and is removed.
func TestRPMLife(t *testing.T) {
	r := releaseMade(t)
	needs.Program(t, "rpm")
	old := older(t, r)
	m := newMachine(t)
	arch := map[string]string{"amd64": "x86_64", "arm64": "aarch64"}[here.arch]
	rpm := func(args ...string) string {
		t.Helper()
		cmd := exec.Command("rpm", append([]string{"--root", m.dir, "--dbpath", "/var/lib/rpm"}, args...)...)
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%s: %v\n%s", cmd, err, out)
		}
		return string(out)
	}
	m.files(r)
	// What the package requires is in Debian's database, and not in RPM's.
	rpm("--install", "--nodeps", filepath.Join(old.out, "drawgate-0.0.9-1."+arch+".rpm"))
	m.run("sed -i 's/amount: 10}/amount: 20}/' /etc/drawgate/drawgate.yaml")
	take := "curl -s -d '{\"policy\": \"sample\", \"key\": \"me\"}' localhost:7878/v1/take; kill $pid; wait $pid"
	if out := m.run(serve + take); !strings.Contains(out, `"remaining":19`) {
		t.Errorf("before the upgrade: %s", out)
	}
	rpm("--upgrade", "--nodeps", filepath.Join(r.out, "drawgate-"+r.version+"-1."+arch+".rpm"))
	if out := rpm("--query", "drawgate"); !strings.HasPrefix(out, "drawgate-"+r.version+"-1") {
		t.Errorf("installed: %s", out)
	}
	if out := m.run(serve + take); !strings.Contains(out, `"remaining":18`) {
		t.Errorf("after the upgrade: %s", out)
	}
	rpm("--verify", "--nodeps", "--noconfig", "drawgate") // the configuration was changed
	rpm("--erase", "drawgate")
	if _, err := os.Stat(m.path("/usr/bin/drawgate")); err == nil {
		t.Error("the program is there after it was removed")
	}
	if !strings.Contains(m.read("/etc/drawgate/drawgate.yaml.rpmsave"), "amount: 20}") {
		t.Error("the changed configuration was not kept")
	}
}

// Under systemd the service does what the page says: SQLite, TLS, reload, and no more.
func TestBooted(t *testing.T) {
	r := releaseMade(t)
	nspawn := needs.Program(t, "systemd-nspawn")
	m := newMachine(t)
	m.files(r)
	m.follow(lines(t, "## Debian and Ubuntu")[:1], "")
	script, err := os.ReadFile("testdata/booted.sh")
	if err != nil {
		t.Fatal(err)
	}
	m.write("/booted.sh", string(script), 0o755)
	certificates := newAuthority(t)
	for name, text := range certificates {
		m.write("/tls/"+name, text, 0o644)
	}
	m.write("/etc/systemd/system/booted.service", `[Unit]
After=multi-user.target
[Service]
Type=oneshot
ExecStart=/bin/sh -c '/booted.sh >/result 2>&1; sync; systemctl --no-block --force poweroff'
[Install]
WantedBy=graphical.target
`, 0o644)
	m.run("systemctl enable booted.service; systemctl set-default graphical.target")
	ctx, stop := context.WithTimeout(t.Context(), 5*time.Minute)
	defer stop()
	cmd := exec.CommandContext(ctx, nspawn, "--quiet", "--directory", m.dir, "--machine",
		fmt.Sprintf("drawgate%d", os.Getpid()), "--boot", "--private-network",
		"--register=no", "--keep-unit", "--console=pipe", "--link-journal=no")
	out, err := cmd.CombinedOutput()
	result, readErr := os.ReadFile(m.path("/result"))
	if readErr != nil {
		t.Fatalf("it did not boot: %v\n%s", err, out)
	}
	t.Logf("%s", result)
	if !bytes.HasSuffix(result, []byte("all is well\n")) {
		t.Errorf("the script failed")
	}
}

// newAuthority returns a certificate for localhost, its key, and the authority's certificate.
func newAuthority(t *testing.T) map[string]string {
	t.Helper()
	key := func() *ecdsa.PrivateKey {
		k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		return k
	}
	caKey, serverKey := key(), key()
	ca := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "Test"}, NotAfter: time.Now().Add(time.Hour),
		NotBefore: time.Now().Add(-time.Hour), IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	server := &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: "localhost"},
		NotAfter: ca.NotAfter, NotBefore: ca.NotBefore,
		DNSNames:    []string{"localhost"},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	caDER, err1 := x509.CreateCertificate(rand.Reader, ca, ca, caKey.Public(), caKey)
	serverDER, err2 := x509.CreateCertificate(rand.Reader, server, ca, serverKey.Public(), caKey)
	keyDER, err3 := x509.MarshalPKCS8PrivateKey(serverKey)
	if err := errors.Join(err1, err2, err3); err != nil {
		t.Fatal(err)
	}
	text := func(kind string, der []byte) string {
		return string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}))
	}
	return map[string]string{
		"ca.crt": text("CERTIFICATE", caDER), "server.crt": text("CERTIFICATE", serverDER),
		"server.key": text("PRIVATE KEY", keyDER),
	}
}
