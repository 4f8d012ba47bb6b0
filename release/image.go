package main

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/crypto/x509roots/fallback/bundle"
)

// User and group that the image runs as, unless the one who starts it names others.
const imageUser = "65532:65532"

// Types of the parts of an image, as its specification calls them.
const (
	typeIndex    = "application/vnd.oci.image.index.v1+json"
	typeManifest = "application/vnd.oci.image.manifest.v1+json"
	typeConfig   = "application/vnd.oci.image.config.v1+json"
	typeLayer    = "application/vnd.oci.image.layer.v1.tar+gzip"
)

// descriptor refers to a part of an image.
type descriptor struct {
	MediaType   string            `json:"mediaType"`
	Digest      string            `json:"digest"`
	Size        int               `json:"size"`
	Platform    *platform         `json:"platform,omitempty"`
	Annotations map[string]string `json:"annotations,omitempty"`
}

type platform struct {
	Architecture string `json:"architecture"`
	OS           string `json:"os"`
}

type manifest struct {
	SchemaVersion int          `json:"schemaVersion"`
	MediaType     string       `json:"mediaType"`
	Config        *descriptor  `json:"config,omitempty"`
	Layers        []descriptor `json:"layers,omitempty"`
	Manifests     []descriptor `json:"manifests,omitempty"`
}

type imageConfig struct {
	Created      time.Time `json:"created"`
	Architecture string    `json:"architecture"`
	OS           string    `json:"os"`
	Config       struct {
		User         string
		ExposedPorts map[string]struct{}
		Env          []string
		Entrypoint   []string
		Cmd          []string
		Volumes      map[string]struct{}
		WorkingDir   string
		Labels       map[string]string
	} `json:"config"`
	RootFS struct {
		Type    string   `json:"type"`
		DiffIDs []string `json:"diff_ids"`
	} `json:"rootfs"`
	History []history `json:"history"`
}

type history struct {
	Created   time.Time `json:"created"`
	CreatedBy string    `json:"created_by"`
}

// ociLayout is an OCI image layout in memory.
type ociLayout struct{ files []file }

// add adds a blob, and returns what refers to it.
func (l *ociLayout) add(mediaType string, data []byte) descriptor {
	sum := hex.EncodeToString(digest(data))
	name := "blobs/sha256/" + sum
	for _, f := range l.files {
		if f.name == name {
			return descriptor{MediaType: mediaType, Digest: "sha256:" + sum, Size: len(data)}
		}
	}
	l.files = append(l.files, file{name, 0o644, data})
	return descriptor{MediaType: mediaType, Digest: "sha256:" + sum, Size: len(data)}
}

func digest(data []byte) []byte {
	sum := sha256.Sum256(data)
	return sum[:]
}

// end adds what makes the blobs a layout.
func (l *ociLayout) end(refs ...descriptor) {
	l.files = append(l.files, file{"oci-layout", 0o644, []byte(`{"imageLayoutVersion":"1.0.0"}`)},
		file{"index.json", 0o644, encode(manifest{SchemaVersion: 2, MediaType: typeIndex, Manifests: refs})})
}

func encode(v any) []byte {
	data, err := json.Marshal(v)
	if err != nil { // these types have nothing that JSON lacks
		panic(err) //nolint:forbidigo // a mistake of this program
	}
	return data
}

// images writes the images for Linux: as a layout of all architectures, and of each one a file that
// docker and podman load.
func (r *release) images() error {
	var whole ociLayout
	var platforms []descriptor
	for _, t := range r.targets {
		if t.os != "linux" {
			continue
		}
		var one ociLayout
		d, err := r.image(&one, t)
		if err != nil {
			return err
		}
		whole.files = append(whole.files, one.files...)
		d.Platform = &platform{t.arch, t.os}
		platforms = append(platforms, d)

		blob := func(digest string) string { return strings.Replace(digest, "sha256:", "blobs/sha256/", 1) }
		var m manifest
		if err := json.Unmarshal(one.files[len(one.files)-1].data, &m); err != nil {
			return err
		}
		one.files = append(one.files, file{"manifest.json", 0o644, encode([]map[string]any{{ // as docker reads it
			"Config": blob(m.Config.Digest), "RepoTags": []string{"drawgate:" + r.version},
			"Layers": []string{blob(m.Layers[0].Digest)},
		}})})
		d.Annotations = map[string]string{
			// docker looks for a name without a registry under this one.
			"org.opencontainers.image.ref.name": r.version, "io.containerd.image.name": "docker.io/library/drawgate:" + r.version,
		}
		one.end(d)
		var packed bytes.Buffer
		if err := errors.Join(writeTar(&packed, one.files, r.time), r.put(r.name("image_"+t.os+"_"+t.arch+".tar"),
			packed.Bytes())); err != nil {
			return err
		}
	}
	if len(platforms) == 0 {
		return nil
	}
	index := whole.add(typeIndex, encode(manifest{SchemaVersion: 2, MediaType: typeIndex, Manifests: platforms}))
	index.Annotations = map[string]string{"org.opencontainers.image.ref.name": r.version}
	whole.end(index)
	for _, f := range whole.files {
		if err := r.put("image/"+f.name, f.data); err != nil {
			return err
		}
	}
	return nil
}

// image adds the image of one architecture to a layout. Its manifest is the last file.
func (r *release) image(l *ociLayout, t target) (d descriptor, err error) {
	program, err := os.ReadFile(r.program(t))
	if err != nil {
		return d, err
	}
	var layer, packed bytes.Buffer
	if err := writeTar(&layer, []file{
		{"usr/bin/drawgate", 0o755, program},
		{"etc/ssl/certs/ca-certificates.crt", 0o644, certificates()},
		{"etc/drawgate", fs.ModeDir | 0o755, nil},
		// Whoever runs the container may write here: of which user and group is not known.
		{"var/lib/drawgate", fs.ModeDir | fs.ModeSticky | 0o777, nil},
		{"usr/share/doc/drawgate/LICENSE", 0o644, r.docs.licence},
		{"usr/share/doc/drawgate/NOTICES.txt", 0o644, r.docs.notices},
	}, r.time); err != nil {
		return d, err
	}
	z, err := gzip.NewWriterLevel(&packed, gzip.BestCompression)
	if err != nil {
		return d, err
	}
	if _, err := z.Write(layer.Bytes()); err != nil {
		return d, err
	}
	if err := z.Close(); err != nil {
		return d, err
	}
	c := imageConfig{Created: r.time, Architecture: t.arch, OS: t.os, History: []history{{r.time, "make release"}}}
	c.Config.User = imageUser
	c.Config.Entrypoint, c.Config.Cmd = []string{"/usr/bin/drawgate"}, []string{"serve"}
	// Loopback is the container itself, which nobody outside reaches. The server does not start on
	// another address without access tokens or client certificates, unless it is told to.
	c.Config.Env = []string{"PATH=/usr/bin", "XDG_STATE_HOME=/var/lib", "DRAWGATE_LISTEN=:7878"}
	c.Config.ExposedPorts = map[string]struct{}{"7878/tcp": {}}
	c.Config.Volumes = map[string]struct{}{"/var/lib/drawgate": {}}
	c.Config.WorkingDir = "/var/lib/drawgate"
	c.Config.Labels = map[string]string{
		"org.opencontainers.image.title":       "Drawgate",
		"org.opencontainers.image.description": summary,
		"org.opencontainers.image.licenses":    "Apache-2.0",
		"org.opencontainers.image.source":      homepage,
		"org.opencontainers.image.version":     r.version,
		"org.opencontainers.image.revision":    r.commit,
		"org.opencontainers.image.created":     r.time.Format(time.RFC3339),
	}
	c.RootFS.Type = "layers"
	c.RootFS.DiffIDs = []string{"sha256:" + hex.EncodeToString(digest(layer.Bytes()))}
	m := manifest{SchemaVersion: 2, MediaType: typeManifest, Layers: []descriptor{l.add(typeLayer, packed.Bytes())}}
	ref := l.add(typeConfig, encode(c))
	m.Config = &ref
	return l.add(typeManifest, encode(m)), nil
}

// certificates returns Mozilla's certificates of authorities, in PEM. Those that Mozilla trusts
// only up to a date are left out: a file of certificates cannot say so.
func certificates() []byte {
	var all bytes.Buffer
	for root := range bundle.Roots() {
		if root.Constraint == nil {
			_ = pem.Encode(&all, &pem.Block{Type: "CERTIFICATE", Bytes: root.Certificate}) // in memory
		}
	}
	return all.Bytes()
}

// checksums writes the SHA-256 of each file of the release, as sha256sum reads it.
func (r *release) checksums() error {
	entries, err := os.ReadDir(r.out)
	if err != nil {
		return err
	}
	var list strings.Builder
	for _, e := range entries {
		if e.IsDir() { // the programs are in the archives, the image's layout in its files
			continue
		}
		data, err := os.ReadFile(filepath.Join(r.out, e.Name()))
		if err != nil {
			return err
		}
		list.WriteString(hex.EncodeToString(digest(data)) + "  " + e.Name() + "\n")
	}
	return r.put("SHA256SUMS", []byte(list.String()))
}
