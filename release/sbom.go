package main

import (
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"
)

// bom is a list of what is in a program: CycloneDX 1.6.
type bom struct {
	Format       string       `json:"bomFormat"`
	SpecVersion  string       `json:"specVersion"`
	Serial       string       `json:"serialNumber"`
	Version      int          `json:"version"`
	Metadata     bomMetadata  `json:"metadata"`
	Components   []component  `json:"components"`
	Dependencies []dependency `json:"dependencies"`
}

type bomMetadata struct {
	Timestamp time.Time `json:"timestamp"`
	Component component `json:"component"`
}

type component struct {
	Type       string          `json:"type"`
	Ref        string          `json:"bom-ref"`
	Name       string          `json:"name"`
	Version    string          `json:"version"`
	Hashes     []bomHash       `json:"hashes,omitempty"`
	Licences   []licenceChoice `json:"licenses"`
	PURL       string          `json:"purl"`
	Properties []property      `json:"properties,omitempty"`
}

type bomHash struct {
	Algorithm string `json:"alg"`
	Content   string `json:"content"`
}

type licenceChoice struct {
	Licence struct {
		ID string `json:"id"`
	} `json:"license"`
}

type property struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

type dependency struct {
	Ref       string   `json:"ref"`
	DependsOn []string `json:"dependsOn"`
}

// boms writes the list of what is in each program.
func (r *release) boms() error {
	for _, t := range r.targets {
		program, err := os.ReadFile(r.program(t))
		if err != nil {
			return err
		}
		sum := digest(program)
		purl := "pkg:golang/github.com/drawgate/drawgate@v" + r.version
		b := bom{Format: "CycloneDX", SpecVersion: "1.6", Version: 1, Serial: "urn:uuid:" + uuid(sum)}
		b.Metadata.Timestamp = r.time
		b.Metadata.Component = component{
			Type: "application", Ref: purl, PURL: purl, Name: "drawgate", Version: r.version,
			Licences: choices("Apache-2.0"), Hashes: []bomHash{{"SHA-256", hex.EncodeToString(sum)}},
			Properties: []property{
				{"drawgate:platform", t.String()},
				{"drawgate:commit", r.commit},
			},
		}
		whole := dependency{Ref: purl}
		for _, m := range r.modules {
			if !m.targets[t] {
				continue
			}
			c := component{Type: "library", Name: m.path, Version: m.version, Licences: choices(m.licences...)}
			c.PURL = "pkg:golang/" + strings.ToLower(m.path) + "@" + strings.ReplaceAll(m.version, "+", "%2B")
			if m.path == goLibrary {
				c.PURL = "pkg:golang/std@" + m.version
			}
			c.Ref = c.PURL
			if m.sum != "" {
				c.Properties = []property{{"drawgate:go.sum", m.sum}}
			}
			b.Components, whole.DependsOn = append(b.Components, c), append(whole.DependsOn, c.Ref)
		}
		b.Dependencies = []dependency{whole}
		text, err := json.MarshalIndent(b, "", "  ")
		if err := errors.Join(err, r.put(r.name(t.os+"_"+t.arch+".cdx.json"), append(text, '\n'))); err != nil {
			return err
		}
	}
	return nil
}

func choices(ids ...string) (list []licenceChoice) {
	for _, id := range ids {
		var c licenceChoice
		c.Licence.ID = id
		list = append(list, c)
	}
	return list
}

// uuid returns a UUID (RFC 9562, version 8) made of a hash, so that it is the same each time.
func uuid(sum []byte) string {
	b := append([]byte(nil), sum[:16]...)
	b[6], b[8] = b[6]&0x0f|0x80, b[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}
