//go:build unix

package pgtest

import (
	"fmt"
	"os"
	"os/user"
	"strconv"
	"syscall"

	"github.com/drawgate/drawgate/internal/redistest"
)

// credential returns who runs the programs in place of root; nil if that is not needed.
func credential() (*syscall.Credential, error) {
	if os.Geteuid() != 0 {
		return nil, nil //nolint:nilnil // nobody, and no error
	}
	u, err := user.Lookup("postgres")
	if err != nil {
		u, err = user.Lookup("nobody")
	}
	if err != nil {
		return nil, err
	}
	uid, err := strconv.ParseUint(u.Uid, 10, 32)
	if err != nil {
		return nil, fmt.Errorf("user %s: %w", u.Username, err)
	}
	gid, err := strconv.ParseUint(u.Gid, 10, 32)
	if err != nil {
		return nil, fmt.Errorf("user %s: %w", u.Username, err)
	}
	return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}, nil
}

// giveAway makes a folder that of the programs' user.
func giveAway(dir string) error {
	c, err := credential()
	if err != nil || c == nil {
		return err
	}
	return os.Chown(dir, int(c.Uid), int(c.Gid))
}

// attributes are those of each process: it dies with the test binary, and is not root's.
func attributes() (*syscall.SysProcAttr, error) {
	attr := redistest.DieWithParent()
	if attr == nil {
		attr = &syscall.SysProcAttr{}
	}
	var err error
	attr.Credential, err = credential()
	return attr, err
}
