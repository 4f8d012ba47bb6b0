package wheel

import (
	"bytes"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/BurntSushi/toml"
)

// pyproject is what the packages of the client need of its pyproject.toml.
type pyproject struct {
	Project struct {
		Name, Description, Readme, License string
		LicenseFiles                       []string `toml:"license-files"`
		Authors                            []struct{ Name string }
		RequiresPython                     string `toml:"requires-python"`
		Dependencies                       []string
		OptionalDependencies               map[string][]string          `toml:"optional-dependencies"`
		EntryPoints                        map[string]map[string]string `toml:"entry-points"`
		Keywords, Classifiers              []string
		URLs                               map[string]string
	}
	Tool struct {
		Hatch struct {
			Build struct {
				Targets map[string]struct {
					OnlyInclude []string `toml:"only-include"`
				}
			}
		}
	}
}

// Client writes the client's wheel and its source package, and returns their paths.
func (o *Options) Client() (paths []string, err error) {
	if err := o.checkVersion(); err != nil {
		return nil, err
	}
	var p pyproject
	if _, err := toml.DecodeFile(filepath.Join(o.Python, "pyproject.toml"), &p); err != nil {
		return nil, err
	}
	metadata, err := o.metadata(&p)
	if err != nil {
		return nil, err
	}
	name := p.Project.Name + "-" + o.Version
	info := name + ".dist-info/"

	files, err := o.included(&p, "wheel", "")
	if err != nil {
		return nil, err
	}
	for _, license := range p.Project.LicenseFiles {
		list, err := o.tree(license, info+"licenses/")
		if err != nil {
			return nil, err
		}
		files = append(files, list...)
	}
	files = append(files, file{info + "METADATA", metadata, 0o644},
		file{info + "entry_points.txt", entryPoints(p.Project.EntryPoints), 0o644})
	built, err := o.writeWheel(name, []string{anyPlatform}, files)
	if err != nil {
		return nil, err
	}

	more := slices.Concat(p.Project.LicenseFiles, []string{p.Project.Readme, "pyproject.toml"})
	source, err := o.included(&p, "sdist", name+"/", more...)
	if err != nil {
		return nil, err
	}
	source = append(source, file{name + "/PKG-INFO", metadata, 0o644})
	var b bytes.Buffer
	if err := writeTarGz(&b, source, o.Time); err != nil {
		return nil, err
	}
	sdist := filepath.Join(o.Out, name+".tar.gz")
	return []string{built, sdist}, os.WriteFile(sdist, b.Bytes(), 0o644) //nolint:gosec // everybody may read a release
}

// included returns the files that pyproject.toml names for a target, and more ones, in a folder of
// an archive.
func (o *Options) included(p *pyproject, target, folder string, more ...string) (files []file, err error) {
	names := append(slices.Clone(p.Tool.Hatch.Build.Targets[target].OnlyInclude), more...)
	slices.Sort(names)
	for _, name := range names {
		list, err := o.tree(name, folder)
		if err != nil {
			return nil, err
		}
		files = append(files, list...)
	}
	return files, nil
}

// tree returns a file of the folder python, or all files below a folder of it, but for what Python
// has compiled.
func (o *Options) tree(name, folder string) (files []file, err error) {
	root := os.DirFS(o.Python)
	err = fs.WalkDir(root, name, func(name string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && entry.Name() == "__pycache__":
			return fs.SkipDir
		case entry.IsDir():
			return nil
		}
		content, err := fs.ReadFile(root, name)
		files = append(files, file{path.Join(folder, name), content, 0o644})
		return err
	})
	return files, err
}

// metadata returns the file METADATA.
func (o *Options) metadata(p *pyproject) ([]byte, error) {
	var b bytes.Buffer
	line := func(name string, values ...string) {
		for _, v := range values {
			fmt.Fprintf(&b, "%s: %s\n", name, v)
		}
	}
	line("Metadata-Version", "2.4")
	line("Name", p.Project.Name)
	line("Version", o.Version)
	line("Summary", p.Project.Description)
	for _, name := range slices.Sorted(maps.Keys(p.Project.URLs)) {
		line("Project-URL", name+", "+p.Project.URLs[name])
	}
	for _, author := range p.Project.Authors {
		line("Author", author.Name)
	}
	line("License-Expression", p.Project.License)
	line("License-File", p.Project.LicenseFiles...)
	line("Keywords", strings.Join(slices.Sorted(slices.Values(p.Project.Keywords)), ","))
	line("Classifier", p.Project.Classifiers...)
	line("Requires-Python", p.Project.RequiresPython)
	line("Requires-Dist", p.Project.Dependencies...)
	for _, extra := range slices.Sorted(maps.Keys(p.Project.OptionalDependencies)) {
		line("Provides-Extra", extra)
		for _, requirement := range p.Project.OptionalDependencies[extra] {
			line("Requires-Dist", requirement+"; extra == '"+extra+"'")
		}
	}
	line("Description-Content-Type", "text/markdown")
	readme, err := os.ReadFile(filepath.Join(o.Python, p.Project.Readme))
	return append(append(b.Bytes(), '\n'), readme...), err
}

// entryPoints returns the file entry_points.txt.
func entryPoints(groups map[string]map[string]string) []byte {
	var b bytes.Buffer
	for _, group := range slices.Sorted(maps.Keys(groups)) {
		fmt.Fprintf(&b, "[%s]\n", group)
		for _, name := range slices.Sorted(maps.Keys(groups[group])) {
			fmt.Fprintf(&b, "%s = %s\n", name, groups[group][name])
		}
	}
	return b.Bytes()
}
