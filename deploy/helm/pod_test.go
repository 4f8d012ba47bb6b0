package helm_test

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// pod is a rendered pod, with the objects that its container refers to.
type pod struct {
	spec    *corev1.PodSpec
	objects map[string]map[string]string // "ConfigMap/drawgate" and what is in it
}

func (p *pod) container() *corev1.Container { return &p.spec.Containers[0] }

// podOf returns the pod of a Deployment. others are Secrets and ConfigMaps that the chart does not
// render.
func (o *objects) podOf(t *testing.T, name string, others map[string]map[string]string) *pod {
	t.Helper()
	for _, d := range o.deployments {
		if d.Name != name {
			continue
		}
		p := &pod{spec: d.Spec.Template.Spec.DeepCopy(), objects: map[string]map[string]string{}}
		maps.Copy(p.objects, others)
		for _, c := range o.configMaps {
			p.objects["ConfigMap/"+c.Name] = c.Data
		}
		return p
	}
	t.Fatalf("there is no Deployment %s", name)
	return nil
}

// env returns the variables that the kubelet would set.
func (p *pod) env(t *testing.T) (list []string) {
	t.Helper()
	all := map[string]string{}
	for _, from := range p.container().EnvFrom {
		maps.Copy(all, p.object(t, "Secret/"+from.SecretRef.Name))
	}
	for _, e := range p.container().Env {
		value := e.Value
		if e.ValueFrom != nil {
			r, ok := e.ValueFrom.SecretKeyRef, false
			if value, ok = p.object(t, "Secret/"+r.Name)[r.Key]; !ok {
				t.Fatalf("Secret %s has no key %s", r.Name, r.Key)
			}
		}
		all[e.Name] = value
	}
	for name, value := range all {
		list = append(list, name+"="+value)
	}
	slices.Sort(list)
	return list
}

func (p *pod) object(t *testing.T, name string) map[string]string {
	t.Helper()
	data, ok := p.objects[name]
	if !ok {
		t.Fatalf("the pod needs %s, which is not there", name)
	}
	return data
}

// volumes writes the pod's volumes as the kubelet does, and returns their folders by name.
func (p *pod) volumes(t *testing.T, dir string) map[string]string {
	t.Helper()
	all := map[string]string{}
	for _, v := range p.spec.Volumes {
		at := filepath.Join(dir, v.Name)
		if err := os.MkdirAll(at, 0o777); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(at, 0o777); err != nil {
			t.Fatal(err)
		}
		all[v.Name] = at
		if data := p.files(t, &v); data != nil {
			publish(t, at, data)
		}
	}
	return all
}

// files returns what is in a volume; nil for an empty one.
func (p *pod) files(t *testing.T, v *corev1.Volume) map[string]string {
	t.Helper()
	switch {
	case v.ConfigMap != nil:
		return p.object(t, "ConfigMap/"+v.ConfigMap.Name)
	case v.Secret != nil:
		return p.object(t, "Secret/"+v.Secret.SecretName)
	case v.Projected != nil:
		all := map[string]string{}
		for _, s := range v.Projected.Sources {
			maps.Copy(all, p.object(t, "Secret/"+s.Secret.Name))
		}
		return all
	case v.EmptyDir != nil:
		return nil
	}
	t.Fatalf("volume %s is of a kind that the chart does not use", v.Name)
	return nil
}

// publish writes files into a volume as the kubelet does: into a new folder, to which the link
// ..data then points. Each file is a link through that one.
func publish(t *testing.T, dir string, files map[string]string) {
	t.Helper()
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	old, err := os.Readlink(filepath.Join(dir, "..data"))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	next := "..2026_01_02." + strconv.FormatInt(time.Now().UnixNano(), 10)
	check(os.Mkdir(filepath.Join(dir, next), 0o755)) //nolint:gosec // as the kubelet does
	for name, text := range files {
		check(os.WriteFile(filepath.Join(dir, next, name), []byte(text), 0o644)) //nolint:gosec // as above
	}
	check(os.Symlink(next, filepath.Join(dir, "..data_tmp")))
	check(os.Rename(filepath.Join(dir, "..data_tmp"), filepath.Join(dir, "..data")))
	for name := range files {
		if err := os.Symlink(filepath.Join("..data", name), filepath.Join(dir, name)); !errors.Is(err, os.ErrExist) {
			check(err)
		}
	}
	if old != "" {
		check(os.RemoveAll(filepath.Join(dir, old)))
	}
}

// port returns the port of the container that a probe or a Service names.
func (p *pod) port(t *testing.T, name string) int {
	t.Helper()
	for _, c := range p.container().Ports {
		if c.Name == name {
			return int(c.ContainerPort)
		}
	}
	t.Fatalf("the container has no port %s", name)
	return 0
}

// preStop is how long the kubelet waits before it sends SIGTERM.
func (p *pod) preStop() time.Duration {
	return time.Duration(p.container().Lifecycle.PreStop.Sleep.Seconds) * time.Second
}

// patience is how long the kubelet waits before it sends SIGKILL.
func (p *pod) patience() time.Duration {
	return time.Duration(*p.spec.TerminationGracePeriodSeconds) * time.Second
}

// described says what a probe asks, for messages.
func described(p *corev1.Probe) string {
	return fmt.Sprintf("GET %s every %ds", p.HTTPGet.Path, p.PeriodSeconds)
}

// url is what a probe asks, of a server at that address.
func url(p *corev1.Probe, addr string) string {
	return strings.ToLower(string(p.HTTPGet.Scheme)) + "://" + addr + p.HTTPGet.Path
}
