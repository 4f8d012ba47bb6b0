package needs

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// envDrawgate names the program drawgate that "make test" has built.
const envDrawgate = "DRAWGATE_TEST_PROGRAM"

// Drawgate puts the program drawgate at path, which must not exist: a link to the one that "make
// test" has built for all packages, or else a new one. root is the root of the repository, seen
// from the folder of the test.
func Drawgate(root, path string) error {
	if built := os.Getenv(envDrawgate); built != "" {
		if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
			return err
		}
		return os.Symlink(built, path)
	}
	cmd := exec.Command("go", "build", "-o", path, "./cmd/drawgate") //nolint:gosec,noctx // once, for all tests of a package
	cmd.Dir = root
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("go build: %w\n%s", err, out)
	}
	return nil
}
