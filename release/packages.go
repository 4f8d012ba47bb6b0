package main

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/goreleaser/nfpm/v2"
	_ "github.com/goreleaser/nfpm/v2/deb" // registers itself
	"github.com/goreleaser/nfpm/v2/files"
	_ "github.com/goreleaser/nfpm/v2/rpm"
)

// What packages and images say about the program.
const (
	homepage   = "https://github.com/drawgate/drawgate"
	maintainer = "Drawgate maintainers <maintainers@drawgate.invalid>"
	summary    = "rate limits and quotas that many processes share"
	about      = `Drawgate keeps any number of processes inside one quota: API calls per
minute, tokens per day, concurrent builds. The total never exceeds the quota.
.
It is a server with an HTTP API for any language, the service that proxies
such as nginx, HAProxy and Envoy ask about requests, a gateway in front of
providers of large language models, and a command line. Counts are kept in a
SQLite file, on Redis or Valkey, in PostgreSQL, or in a table of DynamoDB.`
)

// formats are the formats of packages.
var formats = []struct {
	name string
	// Where each shell looks for completions. PowerShell has no folder for them.
	bash, zsh, fish string
}{
	{
		"deb", "usr/share/bash-completion/completions/drawgate", "usr/share/zsh/vendor-completions/_drawgate",
		"usr/share/fish/vendor_completions.d/drawgate.fish",
	},
	{
		"rpm", "usr/share/bash-completion/completions/drawgate", "usr/share/zsh/site-functions/_drawgate",
		"usr/share/fish/vendor_completions.d/drawgate.fish",
	},
}

// packages writes the packages for Linux.
func (r *release) packages() error {
	dir, err := os.MkdirTemp("", "drawgate-packages") // nfpm reads files
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir) //nolint:errcheck // nothing can be done
	for _, t := range r.targets {
		for _, f := range formats {
			if t.os != "linux" {
				continue
			}
			if err := r.pkg(t, f.name, filepath.Join(dir, f.name+t.arch)); err != nil {
				return fmt.Errorf("%s for %s: %w", f.name, t, err)
			}
		}
	}
	return nil
}

// pkg writes a package. It puts its files into dir first.
func (r *release) pkg(t target, format, dir string) error {
	list, err := r.packed(t, format)
	if err != nil {
		return err
	}
	info := &nfpm.Info{
		Name: "drawgate", Arch: t.arch, Platform: "linux", Version: r.version, VersionSchema: "semver", Release: "1",
		Section: "net", Priority: "optional", Maintainer: maintainer, Homepage: homepage, License: "Apache-2.0",
		Description: summary + "\n" + about, MTime: r.time,
	}
	scripts := []string{"postinst", "prerm", "postrm"}
	if format == "rpm" {
		info.Description = strings.ReplaceAll(about, "\n.\n", "\n\n")
		scripts = []string{"pre", "post", "preun", "postun"}
	}
	for _, name := range scripts {
		if err := put(filepath.Join(dir, name), keptFile(format+"/"+name), 0o755); err != nil {
			return err
		}
	}
	o := &info.Overridables
	switch format {
	case "deb":
		o.Depends = []string{"passwd"} // useradd
		o.Suggests = []string{"redis-server"}
		o.Deb.Compression = "gzip" // which every version of dpkg reads
		o.Scripts = nfpm.Scripts{
			PostInstall: dir + "/postinst", PreRemove: dir + "/prerm", PostRemove: dir + "/postrm",
		}
	case "rpm":
		o.Depends = []string{"/usr/sbin/useradd", "/usr/sbin/groupadd"}
		o.RPM.Compression, o.RPM.BuildHost = "gzip", "localhost"
		o.RPM.Summary, o.RPM.Group = summary, "System Environment/Daemons"
		o.Scripts = nfpm.Scripts{
			PreInstall: dir + "/pre", PostInstall: dir + "/post",
			PreRemove: dir + "/preun", PostRemove: dir + "/postun",
		}
	}
	for _, f := range list {
		source := filepath.Join(dir, "root", filepath.FromSlash(f.name))
		c := &files.Content{
			Source: source, Destination: "/" + f.name,
			FileInfo: &files.ContentFileInfo{Owner: "root", Group: "root", Mode: f.mode.Perm(), MTime: r.time},
		}
		switch {
		case f.mode.IsDir():
			c.Type, c.Source = files.TypeDir, ""
		case strings.HasPrefix(f.name, "etc/"):
			c.Type = files.TypeConfigNoReplace
		}
		if !f.mode.IsDir() {
			if err := put(source, f.data, f.mode); err != nil {
				return err
			}
		}
		o.Contents = append(o.Contents, c)
	}
	packager, err := nfpm.Get(format)
	if err != nil {
		return err
	}
	info = nfpm.WithDefaults(info)
	var out bytes.Buffer
	if err := packager.Package(info, &out); err != nil {
		return err
	}
	return r.put(packager.ConventionalFileName(info), out.Bytes())
}

// put writes a file, whose folder it creates.
func put(path string, data []byte, mode fs.FileMode) error {
	return errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, data, mode.Perm()))
}

// packed returns the files of a package.
func (r *release) packed(t target, format string) ([]file, error) {
	program, err := os.ReadFile(r.program(t))
	if err != nil {
		return nil, err
	}
	list := []file{
		{"usr/bin/drawgate", 0o755, program},
		{"usr/lib/systemd/system/drawgate.service", 0o644, keptFile("drawgate.service")},
		{"etc/drawgate", fs.ModeDir | 0o755, nil},
		{"etc/drawgate/drawgate.yaml", 0o644, keptFile("drawgate.yaml")},
	}
	for _, f := range formats {
		if f.name != format {
			continue
		}
		places := map[string]string{".bash": f.bash, ".zsh": f.zsh, ".fish": f.fish}
		for _, c := range r.docs.completions {
			if where := places[path.Ext(c.name)]; where != "" {
				list = append(list, file{where, 0o644, c.data})
			}
		}
	}
	for _, page := range r.docs.man {
		list = append(list, file{"usr/share/man/man1/" + page.name + ".gz", 0o644, zipped(page.data)})
	}
	doc := "usr/share/doc/drawgate/"
	list = append(list, under(doc, r.docs.pages)...)
	switch format {
	case "deb":
		list = append(list,
			file{doc + "copyright", 0o644, r.copyright()},
			file{doc + "NOTICES.txt.gz", 0o644, zipped(r.docs.notices)},
			file{doc + "changelog.gz", 0o644, zipped(r.docs.changelog)},
			file{doc + "changelog.Debian.gz", 0o644, zipped(r.debianChangelog())},
			file{"usr/share/lintian/overrides/drawgate", 0o644, keptFile("deb/overrides")})
	case "rpm":
		list = append(list,
			file{doc + "NOTICES.txt", 0o644, r.docs.notices},
			file{doc + "CHANGELOG.md", 0o644, r.docs.changelog},
			file{"usr/share/licenses/drawgate/LICENSE", 0o644, r.docs.licence})
	}
	return list, nil
}

// zipped returns data as gzip -9n does.
func zipped(data []byte) []byte {
	var b bytes.Buffer
	z, err := gzip.NewWriterLevel(&b, gzip.BestCompression)
	if err == nil {
		_, err = z.Write(data)
	}
	if err = errors.Join(err, z.Close()); err != nil { // in memory
		panic(err) //nolint:forbidigo // a mistake of this program
	}
	return b.Bytes()
}

// debianChangelog returns the changes of the package, in the form that Debian's tools read.
func (r *release) debianChangelog() []byte {
	return fmt.Appendf(nil, "drawgate (%s-1) unstable; urgency=medium\n\n  * Version %s: see changelog.gz.\n\n -- %s  %s\n",
		debianVersion(r.version), r.version, maintainer, r.time.Format("Mon, 02 Jan 2006 15:04:05 -0700"))
}

// debianVersion returns a version as packages write it: a release candidate is older than its
// release.
func debianVersion(version string) string { return strings.Replace(version, "-", "~", 1) }

// copyright returns the file of that name, in the form that Debian's tools read.
func (r *release) copyright() []byte {
	var b strings.Builder
	b.WriteString(`Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/
Upstream-Name: drawgate
Source: ` + homepage + `

Files: *
Copyright: 2026 the authors of Drawgate
License: Apache-2.0
 On Debian systems the full text of this licence is in
 /usr/share/common-licenses/Apache-2.0.
Comment:
 The program contains the modules below. The file NOTICES.txt.gz next to this
 one has their licences in full.
`)
	for _, m := range r.modules {
		fmt.Fprintf(&b, " .\n %s: %s\n", m, strings.Join(m.licences, ", "))
	}
	return []byte(b.String())
}
