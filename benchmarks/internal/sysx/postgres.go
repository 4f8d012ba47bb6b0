package sysx

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Postgres is a PostgreSQL server of our own on loopback, with the default settings. It dies with
// this process.
type Postgres struct {
	*Process

	dir string
}

// StartPostgres makes a database cluster in a new folder below dir ("": that of temporary files)
// and starts the server, with the programs in bin. Nobody needs a password; the superuser is
// postgres. PostgreSQL does not run as root: it is run as the user postgres then.
func StartPostgres(bin, dir string) (*Postgres, error) {
	dir, err := os.MkdirTemp(dir, "bench-postgres-")
	if err != nil {
		return nil, err
	}
	p := &Postgres{dir: dir}
	if err := p.start(bin); err != nil {
		_ = os.RemoveAll(dir)
		return nil, err
	}
	return p, nil
}

func (p *Postgres) start(bin string) error {
	var fs unix.Statfs_t
	if err := unix.Statfs(p.dir, &fs); err != nil {
		return err
	}
	if fs.Type == unix.TMPFS_MAGIC {
		return fmt.Errorf("%s is in memory: commits would cost nothing there: name a folder on a disk", p.dir)
	}
	attr, err := p.asPostgres()
	if err != nil {
		return err
	}
	data := filepath.Join(p.dir, "data")
	initdb := exec.Command(filepath.Join(bin, "initdb"), "-D", data, "-A", "trust", "-U", "postgres", "-E", "UTF8", //nolint:gosec,noctx // the caller's programs
		"--locale=C")
	initdb.SysProcAttr = &attr
	initdb.Dir = p.dir
	if text, err := initdb.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w: %s", initdb.Path, err, text)
	}
	addr, err := Free()
	if err != nil {
		return err
	}
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return err
	}
	cmd := exec.Command(filepath.Join(bin, "postgres"), "-D", data, "-p", port, "-c", "listen_addresses="+host, //nolint:gosec,noctx // the same
		"-c", "unix_socket_directories=")
	attr.Pdeathsig = syscall.SIGQUIT // its processes end with it
	cmd.SysProcAttr = &attr
	cmd.Dir = p.dir
	p.Process, err = StartProcess(cmd, addr, time.Minute)
	return err
}

// asPostgres returns what makes a process run as the user postgres, who then owns the folder; of
// another user than root, nothing.
func (p *Postgres) asPostgres() (attr syscall.SysProcAttr, err error) {
	if os.Geteuid() != 0 {
		return attr, nil
	}
	u, err := user.Lookup("postgres")
	if err != nil {
		return attr, err
	}
	uid, err1 := strconv.ParseUint(u.Uid, 10, 32)
	gid, err2 := strconv.ParseUint(u.Gid, 10, 32)
	if err := errors.Join(err1, err2); err != nil {
		return attr, err
	}
	attr.Credential = &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
	return attr, os.Chown(p.dir, int(uid), int(gid))
}

// URL is the address of the database postgres.
func (p *Postgres) URL() string {
	return "postgres://postgres@" + p.Addr + "/postgres?sslmode=disable"
}

// Stop ends the server, and removes its folder. Transactions that are under way are rolled back.
func (p *Postgres) Stop() {
	_ = p.cmd.Process.Signal(syscall.SIGINT) // it may have ended already
	select {
	case <-p.done:
	case <-time.After(time.Minute):
		_ = p.cmd.Process.Signal(syscall.SIGQUIT)
		<-p.done
	}
	_ = os.RemoveAll(p.dir)
}
