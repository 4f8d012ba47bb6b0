package wheel

import (
	"bytes"
	"cmp"
	"debug/buildinfo"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// Options say what is written, and where.
type Options struct {
	Version string    // of the release
	Python  string    // the folder python of the repository
	Notices []byte    // the licences of what the program was built from
	Time    time.Time // of all files in an archive
	Out     string    // the folder for the files
}

// checkVersion returns an error unless both packages have the version of the release, and the
// client wants the server of that version.
func (o *Options) checkVersion() error {
	for path, format := range map[string]string{
		"drawgate/__init__.py":               `__version__ = "%s"`,
		"server/drawgate_server/__init__.py": `__version__ = "%s"`,
		"pyproject.toml":                     `server = ["drawgate-server==%s"]`,
	} {
		text, err := os.ReadFile(filepath.Join(o.Python, filepath.FromSlash(path)))
		if err != nil {
			return err
		}
		if line := fmt.Sprintf(format, o.Version); !bytes.Contains(text, []byte("\n"+line)) {
			return fmt.Errorf("python/%s is not of version %s: it has no line %s", path, o.Version, line)
		}
	}
	return nil
}

// Server writes the wheel of drawgate-server with a program, for the platform that the program was
// built for, and returns its path.
func (o *Options) Server(program string) (path string, err error) {
	if err := o.checkVersion(); err != nil {
		return "", err
	}
	p, err := platformOf(program)
	if err != nil {
		return "", err
	}
	files, err := o.serverFiles(program, p)
	if err != nil {
		return "", err
	}
	return o.writeWheel("drawgate_server-"+o.Version, p.tags, files)
}

// writeWheel writes a wheel. The files about the wheel itself come last, as installers like it.
func (o *Options) writeWheel(name string, platforms []string, files []file) (path string, err error) {
	var wheel bytes.Buffer
	fmt.Fprintf(&wheel, "Wheel-Version: 1.0\nGenerator: drawgate\nRoot-Is-Purelib: %t\n", platforms[0] == anyPlatform)
	for _, platform := range platforms {
		fmt.Fprintf(&wheel, "Tag: py3-none-%s\n", platform)
	}
	files = append(files, file{name + ".dist-info/WHEEL", wheel.Bytes(), 0o644})
	files = append(files, record(name+".dist-info/RECORD", files))
	var b bytes.Buffer
	if err := writeZip(&b, files, o.Time); err != nil {
		return "", err
	}
	path = filepath.Join(o.Out, name+"-py3-none-"+strings.Join(platforms, ".")+".whl")
	return path, os.WriteFile(path, b.Bytes(), 0o644) //nolint:gosec // everybody may read a release
}

// anyPlatform is the platform of a wheel without a program.
const anyPlatform = "any"

// serverFiles returns what is in a wheel of drawgate-server.
func (o *Options) serverFiles(program string, p platform) (files []file, err error) {
	name := "drawgate_server-" + o.Version
	add := func(name, path string) {
		content, readErr := os.ReadFile(path) //nolint:gosec // it is the release's own
		err = cmp.Or(err, readErr)
		files = append(files, file{name, content, 0o644})
	}
	for _, module := range []string{"__init__.py", "__main__.py", "py.typed"} {
		add("drawgate_server/"+module, filepath.Join(o.Python, "server", "drawgate_server", module))
	}
	add(name+".data/scripts/"+p.program, program)
	files[len(files)-1].mode = 0o755

	info := name + ".dist-info/"
	add(info+"licenses/LICENSE", filepath.Join(o.Python, "LICENSE"))
	files = append(files, file{info + "licenses/NOTICES.txt", o.Notices, 0o644})
	var metadata bytes.Buffer
	fmt.Fprintf(&metadata, "Metadata-Version: 2.4\nName: drawgate-server\nVersion: %s\n"+
		"License-File: LICENSE\nLicense-File: NOTICES.txt\n", o.Version)
	rest, readErr := os.ReadFile(filepath.Join(o.Python, "server", "METADATA"))
	metadata.Write(rest)
	return append(files, file{info + "METADATA", metadata.Bytes(), 0o644}), cmp.Or(err, readErr)
}

// platform is what a program was built for.
type platform struct {
	tags    []string // for installers
	program string   // the name of the program
}

// platforms has what a program was built for, by Go's names. The programs for Linux need no C
// library, so that they run on every one. Go itself needs macOS 12.
var platforms = map[string]platform{
	"linux/amd64":   {[]string{"manylinux_2_17_x86_64", "manylinux2014_x86_64", "musllinux_1_1_x86_64"}, "drawgate"},
	"linux/arm64":   {[]string{"manylinux_2_17_aarch64", "manylinux2014_aarch64", "musllinux_1_1_aarch64"}, "drawgate"},
	"darwin/amd64":  {[]string{"macosx_12_0_x86_64"}, "drawgate"},
	"darwin/arm64":  {[]string{"macosx_12_0_arm64"}, "drawgate"},
	"windows/amd64": {[]string{"win_amd64"}, "drawgate.exe"},
	"windows/arm64": {[]string{"win_arm64"}, "drawgate.exe"},
}

// platformOf returns what a program was built for.
func platformOf(program string) (platform, error) {
	info, err := buildinfo.ReadFile(program)
	if err != nil {
		return platform{}, fmt.Errorf("%s is not a program that Go built: %w", program, err)
	}
	settings := map[string]string{}
	for _, s := range info.Settings {
		settings[s.Key] = s.Value
	}
	p, err := platformFor(settings)
	if err != nil {
		return platform{}, fmt.Errorf("%s %w", program, err)
	}
	return p, nil
}

// platformFor returns what a program with these settings was built for.
func platformFor(settings map[string]string) (platform, error) {
	target := settings["GOOS"] + "/" + settings["GOARCH"]
	p, ok := platforms[target]
	if !ok {
		return platform{}, fmt.Errorf("was built for %s, which has no wheel", target)
	}
	if settings["CGO_ENABLED"] != "0" {
		return platform{}, errors.New("may need a C library, which not all machines have: build it with CGO_ENABLED=0")
	}
	return p, nil
}
