package helm_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/yaml"
)

// Files as users have them. Their first lines are what some options add.
const (
	serverFile = `
telemetry: {salt_file: /run/secrets/drawgate/salt}
policies:
  api: {limits: [{name: rps, rolling: 1s, amount: 300_000_000}]}
rules: [{apply: [{policy: api, key: ip}]}]
`
	gatewayFile = `
policies:
  gpt: {limits: [{name: rpm, rolling: 1m, amount: 500, margin: 2s, keep: {7: 10%}}], fallback: closed}
gateway:
  drain: 1m30s
  upstreams: {openai: {api_key_file: /run/secrets/drawgate/OPENAI_API_KEY, models: [{model: "*", policy: gpt}]}}
  keys: [{name: alice, secret_env: ALICE_KEY}]
`
)

// set changes values.
type set func(v map[string]any)

// options are what users choose; a combination is a set of them.
var options = []struct {
	name string
	set  set
}{
	{"server", put("server.enabled", true)},
	{"gateway", put("gateway.enabled", true)},
	{"rls", put("rls", map[string]any{"enabled": true, "configMap": "envoy-limits"})},
	{"insecure", put("insecure", true)},
	{"secret", put("secret", "shared")},
	{"store", prepend("store: rediss://redis:6379/0\n")},
	{"tokens", prepend("server: {tokens: [{role: admin, token_env: OWN_TOKEN}]}\n")},
	{"tls", put("tls.secret", "certificate")},
	{"monitor", all(put("serviceMonitor.enabled", true), put("serviceMonitor.labels.release", "prometheus"))},
	{"policy", put("networkPolicy.enabled", true)},
	{"files", all(put("dashboards.enabled", true), put("alerts.enabled", true), put("alerts.labels.a", "b"))},
	{"pods", all(
		put("image.repository", "127.0.0.1:5000/drawgate"), put("image.tag", "0.2.0-rc.1"),
		put("image.pullSecrets", []any{"one", "two"}),
		put("server.nodeSelector", map[string]any{"disk": "ssd"}), put("server.replicas", 1.0),
		put("gateway.tolerations", []any{map[string]any{"key": "llm", "operator": "Exists", "effect": "NoSchedule"}}),
		put("gateway.claim", "ledgers"), put("gateway.secret", "providers"), put("preStopSeconds", 20.0),
		put("serviceAccount.name", "own"), put("networkPolicy.clients", []any{}),
		put("networkPolicy.monitoring", []any{map[string]any{"namespaceSelector": map[string]any{}}}),
	)},
}

func put(path string, value any) set {
	return func(v map[string]any) {
		keys := strings.Split(path, ".")
		for _, k := range keys[:len(keys)-1] {
			next, ok := v[k].(map[string]any)
			if !ok {
				next = map[string]any{}
				v[k] = next
			}
			v = next
		}
		own := value
		if m, ok := value.(map[string]any); ok {
			own = maps.Clone(m) // others put something into it
		}
		v[keys[len(keys)-1]] = own
	}
}

func all(list ...set) set {
	return func(v map[string]any) {
		for _, s := range list {
			s(v)
		}
	}
}

// prepend adds lines to both files.
func prepend(lines string) set {
	return func(v map[string]any) {
		for _, name := range []string{"server", "gateway"} {
			part := v[name].(map[string]any)
			part["config"] = lines + part["config"].(string)
		}
	}
}

// combination returns the values of a set of options, and their names.
func combination(mask int) (values map[string]any, names map[string]bool) {
	values = map[string]any{
		"image":         map[string]any{"repository": "registry.example.com/team/drawgate"},
		"server":        map[string]any{"enabled": false, "config": serverFile},
		"gateway":       map[string]any{"config": gatewayFile},
		"networkPolicy": map[string]any{"enabled": false},
	}
	names = map[string]bool{}
	for i, o := range options {
		if mask&(1<<i) != 0 {
			o.set(values)
			names[o.name] = true
		}
	}
	return values, names
}

// refusal returns what the chart says to a combination that cannot run; "" if it can.
func refusal(has map[string]bool) string {
	switch {
	case !has["server"] && !has["gateway"]:
		return "there is nothing to run"
	case !has["secret"] && !has["store"]:
		return "the pods need a store that they can share"
	case !has["secret"] && !has["insecure"] && !has["tokens"]:
		return "everybody who reaches the pods could take and settle"
	case has["server"] && has["rls"] && !has["insecure"]:
		return "Envoy's rate limit service has no access tokens"
	}
	return ""
}

// Each combination of options is rendered to objects that Kubernetes' own types decode strictly and
// that fit together, or is refused with what to do; and the program accepts each file.
func TestCombinations(t *testing.T) {
	t.Parallel()
	files := &fileSet{seen: map[string]bool{}}
	rendered, refused := 0, 0
	for mask := range 1 << len(options) {
		values, has := combination(mask)
		o, err := render(values)
		if want := refusal(has); want != "" {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Fatalf("%v: got %v, want %q", has, err, want)
			}
			refused++
			continue
		}
		if err != nil {
			t.Fatalf("%v: %v", has, err)
		}
		rendered++
		o.fits(t)
		o.shape(t, has)
		if t.Failed() {
			t.Fatalf("the combination is %v", slices.Sorted(maps.Keys(has)))
		}
		for _, d := range o.deployments {
			p := o.podOf(t, d.Name, outside)
			files.add(t, p, d.Name)
		}
	}
	t.Logf("%d combinations were rendered, %d refused; %d pods with files that the program accepts", rendered, refused, len(files.seen))
}

// outside is what the chart does not render.
var outside = map[string]map[string]string{
	"Secret/shared": {
		"DRAWGATE_STORE": "redis://:password@redis:6379/0", "DRAWGATE_TAKE_TOKEN": "take-0123456789abcdef",
		"DRAWGATE_READ_TOKEN": "read-0123456789abcdef", "DRAWGATE_ADMIN_TOKEN": "admin-0123456789abcdef",
		"OWN_TOKEN": "own-0123456789abcdef", "salt": "salt-0123456789abcdef", "OPENAI_API_KEY": "sk-0123456789abcdef",
		"ALICE_KEY": "vk-alice-0123456789",
	},
	"Secret/providers": {
		"OWN_TOKEN": "own-0123456789abcdef", "OPENAI_API_KEY": "sk-0123456789abcdef",
		"ALICE_KEY": "vk-alice-0123456789",
	},
	"ConfigMap/envoy-limits": {"shop.yaml": "domain: shop\ndescriptors: [{key: a, rate_limit: {unit: second, requests_per_unit: 5}}]\n"},
	"Secret/certificate":     {"tls.crt": "", "tls.key": ""},
}

// fileSet remembers which pods the program has accepted.
type fileSet struct{ seen map[string]bool }

// add lets the program validate the file of a pod, with the variables and files that it would have.
func (f *fileSet) add(t *testing.T, p *pod, name string) {
	t.Helper()
	if len(p.container().EnvFrom) == 0 { // what the file names comes from somewhere else
		p.container().EnvFrom = []corev1.EnvFromSource{{SecretRef: &corev1.SecretEnvSource{
			LocalObjectReference: corev1.LocalObjectReference{Name: "shared"},
		}}}
	}
	env, text := p.env(t), p.object(t, "ConfigMap/"+name)["drawgate.yaml"]
	key := strings.Join(append(env, text), "\x00")
	if f.seen[key] {
		return
	}
	f.seen[key] = true
	validate(t, p, text, env)
}

// unexpected reports whether the program warns of more than that tokens are sent without TLS, which
// tls.secret ends. It does not know the flag --insecure.
func unexpected(out []byte, insecure bool) bool {
	for line := range strings.Lines(string(out)) {
		if strings.HasPrefix(line, "warning:") && !strings.Contains(line, "without TLS") &&
			!(insecure && strings.Contains(line, "no token is required")) {
			return true
		}
	}
	return false
}

// validate runs the program's own check.
func validate(t *testing.T, p *pod, text string, env []string) {
	t.Helper()
	dir := t.TempDir()
	secrets := filepath.Join(dir, "secrets")
	for name, data := range p.objects {
		if strings.HasPrefix(name, "Secret/") {
			for key, value := range data {
				if err := os.MkdirAll(secrets, 0o700); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(filepath.Join(secrets, key), []byte(value), 0o600); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	envoy := filepath.Join(dir, "ratelimit")
	if err := os.Mkdir(envoy, 0o700); err != nil {
		t.Fatal(err)
	}
	for name, text := range p.objects["ConfigMap/envoy-limits"] {
		if err := os.WriteFile(filepath.Join(envoy, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	text = strings.NewReplacer("/run/secrets/drawgate/", secrets+"/", "/etc/ratelimit", envoy).Replace(text)
	path := filepath.Join(dir, "drawgate.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), program(t), "validate", path)
	cmd.Env = env
	out, err := cmd.CombinedOutput()
	if err != nil || unexpected(out, slices.Contains(p.container().Args, "--insecure")) {
		t.Errorf("%s: %v\n%s\n%s", p.container().Image, err, out, text)
	}
}

// shape fails if a combination does not have what it asks for.
func (o *objects) shape(t *testing.T, has map[string]bool) {
	t.Helper()
	count := func(what string, got, want int) {
		t.Helper()
		if got != want {
			t.Errorf("%d of %s, want %d", got, what, want)
		}
	}
	n := 0
	for _, name := range []string{"server", "gateway"} {
		if has[name] {
			n++
		}
	}
	among := func(name string, n int) int {
		if has[name] {
			return n
		}
		return 0
	}
	count("Deployment", len(o.deployments), n)
	count("PodDisruptionBudget", len(o.budgets), n)
	count("NetworkPolicy", len(o.policies), among("policy", n))
	count("ServiceMonitor", len(o.monitors), among("monitor", n))
	count("ConfigMap", len(o.configMaps), n+among("files", 3))
	count("ServiceAccount", len(o.accounts), 1-among("pods", 1))
	rls := 0
	if has["server"] {
		rls = among("rls", 1)
	}
	count("Service", len(o.services), n+rls)
	unseen := has["monitor"] && has["policy"] && !has["pods"]
	if strings.Contains(o.notes, "WARNING") != (has["insecure"] || unseen) {
		t.Errorf("the notes are\n%s", o.notes)
	}
	for _, d := range o.deployments {
		p := pod{spec: &d.Spec.Template.Spec}
		if want := has["insecure"]; slices.Contains(p.container().Args, "--insecure") != want {
			t.Errorf("args %q", p.container().Args)
		}
	}
}

// fits fails if objects do not fit together: Kubernetes would accept them, and they would not work.
func (o *objects) fits(t *testing.T) {
	t.Helper()
	names := map[string]bool{}
	object := func(kind string, m *metav1.ObjectMeta) {
		t.Helper()
		if names[kind+m.Name] {
			t.Errorf("two of %s %s", kind, m.Name)
		}
		names[kind+m.Name] = true
		for _, e := range validation.IsDNS1035Label(m.Name) {
			t.Errorf("%s %s: %s", kind, m.Name, e)
		}
		if m.Namespace != "quotas" {
			t.Errorf("%s %s is in namespace %q", kind, m.Name, m.Namespace)
		}
		for k, v := range m.Labels {
			for _, e := range slices.Concat(validation.IsQualifiedName(k), validation.IsValidLabelValue(v)) {
				t.Errorf("%s %s: label %s=%s: %s", kind, m.Name, k, v, e)
			}
		}
	}
	for _, c := range o.configMaps {
		object("ConfigMap", &c.ObjectMeta)
		size := 0
		for _, text := range c.Data {
			size += len(text)
		}
		if size == 0 || size > 1<<20 {
			t.Errorf("ConfigMap %s has %d bytes", c.Name, size)
		}
	}
	for _, a := range o.accounts {
		object("ServiceAccount", &a.ObjectMeta)
	}
	pods := map[string]labels.Set{}
	for _, d := range o.deployments {
		object("Deployment", &d.ObjectMeta)
		pods[d.Name] = d.Spec.Template.Labels
		if !matches(t, d.Spec.Selector, d.Spec.Template.Labels) {
			t.Errorf("Deployment %s does not choose its own pods", d.Name)
		}
		o.whole(t, &d.Spec.Template.Spec)
	}
	chosen := func(what string, s *metav1.LabelSelector) (name string) {
		t.Helper()
		for n, set := range pods {
			if matches(t, s, set) {
				if name != "" {
					t.Errorf("%s chooses pods of two Deployments", what)
				}
				name = n
			}
		}
		if name == "" {
			t.Errorf("%s chooses no pods", what)
		}
		return name
	}
	for _, b := range o.budgets {
		object("PodDisruptionBudget", &b.ObjectMeta)
		chosen("PodDisruptionBudget "+b.Name, b.Spec.Selector)
	}
	for _, s := range o.services {
		object("Service", &s.ObjectMeta)
		name := chosen("Service "+s.Name, &metav1.LabelSelector{MatchLabels: s.Spec.Selector})
		if name == "" {
			continue
		}
		p := o.podOf(t, name, nil)
		for _, port := range s.Spec.Ports {
			if got := p.port(t, port.TargetPort.StrVal); got != int(port.Port) {
				t.Errorf("Service %s leads from port %d to %d", s.Name, port.Port, got)
			}
		}
	}
	for _, n := range o.policies {
		object("NetworkPolicy", &n.ObjectMeta)
		name := chosen("NetworkPolicy "+n.Name, &n.Spec.PodSelector)
		for _, rule := range n.Spec.Ingress {
			if len(rule.From) == 0 || len(rule.Ports) == 0 {
				t.Errorf("NetworkPolicy %s has a rule for everybody, or for all ports", n.Name)
			}
			for _, port := range rule.Ports {
				o.podOf(t, name, nil).port(t, port.Port.StrVal)
			}
		}
	}
	for _, m := range o.monitors {
		object("ServiceMonitor", &m.ObjectMeta)
		found := 0
		for _, s := range o.services {
			if !matches(t, &m.Spec.Selector, s.Labels) {
				continue
			}
			if job := s.Labels[m.Spec.JobLabel]; job != "drawgate" {
				t.Errorf("ServiceMonitor %s: the job is %q, and not that of the alert DrawgateDown", m.Name, job)
			}
			for _, port := range s.Spec.Ports {
				if port.Name == m.Spec.Endpoints[0].Port {
					found++
				}
			}
		}
		if found != 1 {
			t.Errorf("ServiceMonitor %s finds %d ports", m.Name, found)
		}
	}
}

func matches(t *testing.T, s *metav1.LabelSelector, set map[string]string) bool {
	t.Helper()
	sel, err := metav1.LabelSelectorAsSelector(s)
	if err != nil {
		t.Fatal(err)
	}
	return !sel.Empty() && sel.Matches(labels.Set(set))
}

// whole fails if a pod refers to what it does not have, or may do more than it needs.
func (o *objects) whole(t *testing.T, spec *corev1.PodSpec) {
	t.Helper()
	p := &pod{spec: spec}
	c := p.container()
	volumes := map[string]bool{}
	for _, v := range spec.Volumes {
		volumes[v.Name] = true
	}
	paths := map[string]bool{}
	for _, m := range c.VolumeMounts {
		if !volumes[m.Name] {
			t.Errorf("there is no volume %s", m.Name)
		}
		delete(volumes, m.Name)
		for path := range paths {
			if strings.HasPrefix(path+"/", m.MountPath+"/") || strings.HasPrefix(m.MountPath+"/", path+"/") {
				t.Errorf("%s and %s are mounted one in the other", path, m.MountPath)
			}
		}
		paths[m.MountPath] = true
		if m.ReadOnly == (m.Name == "state") {
			t.Errorf("volume %s: readOnly is %v", m.Name, m.ReadOnly)
		}
	}
	if len(volumes) > 0 {
		t.Errorf("nobody mounts %v", volumes)
	}
	for _, probe := range []*corev1.Probe{c.LivenessProbe, c.ReadinessProbe} {
		if probe.HTTPGet.Port.Type != intstr.String {
			t.Errorf("a probe asks port %v", probe.HTTPGet.Port)
		}
		p.port(t, probe.HTTPGet.Port.StrVal)
	}
	if p.preStop() <= 0 || p.patience() < p.preStop()+25e9 {
		t.Errorf("a pod waits for %v, and is killed after %v", p.preStop(), p.patience())
	}
	s := c.SecurityContext
	if !*s.ReadOnlyRootFilesystem || *s.AllowPrivilegeEscalation ||
		!slices.Equal(s.Capabilities.Drop, []corev1.Capability{"ALL"}) || !*spec.SecurityContext.RunAsNonRoot ||
		*spec.AutomountServiceAccountToken || *spec.EnableServiceLinks {
		t.Error("the pod may do more than it needs")
	}
}

// Each value that the chart does not know is refused, at every level, and so is one of a wrong
// type.
func TestUnknownValuesAreRefused(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("drawgate/values.yaml")
	if err != nil {
		t.Fatal(err)
	}
	free := regexp.MustCompile(`(^|\.)(labels|nodeSelector|annotations|requests|limits)$`) // names are up to the user
	n := 0
	var walk func(path []string, m map[string]any)
	walk = func(path []string, m map[string]any) {
		for _, key := range append(slices.Sorted(maps.Keys(m)), "unknown") {
			at := strings.Join(append(slices.Clone(path), key), ".")
			values, _ := combination(0b1010001) // a server with everything that it needs
			if _, err := render(values); err != nil {
				t.Fatal(err)
			}
			part, isMap := m[key].(map[string]any)
			wrong := []any{"a text", map[string]any{"a": "map"}, []any{map[string]any{"of": "maps"}}}
			if key == "unknown" {
				wrong = []any{1.0}
			}
			accepted := 0
			for _, w := range wrong {
				put(at, w)(values)
				if _, err := render(values); err == nil {
					accepted++
				}
				n++
			}
			if isText(m[key]) { // one of them is right
				accepted--
			}
			if parent := strings.Join(path, "."); accepted > 0 && !free.MatchString(parent) && !free.MatchString(at) {
				t.Errorf("%s: %d wrong values are accepted", at, accepted)
			}
			if isMap {
				walk(append(slices.Clone(path), key), part)
			}
		}
	}
	var values map[string]any
	if err := yaml.Unmarshal(text, &values); err != nil {
		t.Fatal(err)
	}
	walk(nil, values)
	t.Logf("%d wrong values", n)
}

func isText(v any) bool { _, ok := v.(string); return ok }

// Names of values that are wrong get an answer that says what to do.
func TestWhatIsMissingIsSaid(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change set
		want   []string
	}{
		"no image": {
			put("image.repository", ""),
			[]string{"image.repository is not set", "OCI layout", "registry of your own"},
		},
		"an image's tag": {put("image.repository", "registry.example.com/drawgate:1"), []string{"repository"}},
		"no file":        {put("server.config", ""), []string{"server.config is empty", "--set-file server.config=drawgate.yaml"}},
		"no YAML":        {put("server.config", "policies: ["), []string{"server.config is no configuration file"}},
		"SQLite": {
			all(put("secret", ""), put("server.config", "store: sqlite:a.db\n"+serverFile)),
			[]string{"store that they can share"},
		},
		"a password in the file": {
			put("server.config", "store: redis://user:secret@redis:6379/0\n"+serverFile),
			[]string{"has a password", "put the URL into a Secret, as DRAWGATE_STORE"},
		},
		"a password with an odd character": {
			put("server.config", "store: rediss://:a/b?c@redis:6379/0\n"+serverFile), []string{"has a password"},
		},
		"a password of PostgreSQL": {
			put("server.config", "store: postgres://app:secret@db/quotas\n"+serverFile), []string{"has a password"},
		},
		"TLS in the file": {put("server.config", "server: {tls: {cert: a, key: b}}\n"+serverFile), []string{"use tls.secret"}},
		"no upstreams": {
			all(put("gateway.enabled", true), put("gateway.config", serverFile)),
			[]string{"no section gateway with upstreams"},
		},
	} {
		values, _ := combination(0b10001)
		c.change(values)
		_, err := render(values)
		for _, want := range c.want {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: got %v, want %q", name, err, want)
			}
		}
	}
}

// A pod waits for as long as its gateway's file says, and some more.
func TestPatienceFollowsDrain(t *testing.T) {
	t.Parallel()
	for drain, want := range map[string]int64{
		"": 30, "drain: 2s": 2, "drain: 1m30s": 90, "drain: 1h": 3600, "drain: 1d": 86400, "drain: 1500ms": 2,
		"drain: 1_000s": 1000,
	} {
		values, _ := combination(0b10010)
		put("gateway.config", strings.Replace(gatewayFile, "drain: 1m30s", drain, 1))(values)
		o, err := render(values)
		if err != nil {
			t.Fatalf("%s: %v", drain, err)
		}
		if got := *o.deployments[0].Spec.Template.Spec.TerminationGracePeriodSeconds; got != 5+want+20 {
			t.Errorf("%q: %d s, want %d s", drain, got, 5+want+20)
		}
	}
}

// A file gets into the ConfigMap as it is, whatever is in it.
func TestFilesStayAsTheyAre(t *testing.T) {
	t.Parallel()
	for _, odd := range []string{
		"  # indented\npolicies: {}\n", "policies:\n  a: \"{{ .Values.secret }}\"\n", "# \u00e9\u4e16\t'\"\\ |\npolicies: {}\n",
		"\n\npolicies: {}\n", "policies: {}", "# ---\n#---\npolicies: {}\n", "policies: {} # trailing  \n",
	} {
		values, _ := combination(0b10001)
		put("server.config", odd)(values)
		o, err := render(values)
		if err != nil {
			t.Errorf("%q: %v", odd, err)
			continue
		}
		if got := o.configMaps[0].Data["drawgate.yaml"]; got != strings.TrimSuffix(odd, "\n")+"\n" {
			t.Errorf("%q became %q", odd, got)
		}
	}
}

// Names may look like numbers, truth values or nothing: what is rendered has them as texts.
func TestNamesStayTexts(t *testing.T) {
	t.Parallel()
	for _, odd := range []string{"123", "1e3", "0x10", "true", "null", "no", "0.5"} {
		values, _ := combination(1<<len(options) - 1)
		for _, path := range []string{
			"secret", "tls.secret", "serviceAccount.name", "rls.configMap", "gateway.secret", "gateway.claim",
		} {
			put(path, odd)(values)
		}
		put("image.pullSecrets", []any{odd})(values)
		namespace := strings.ReplaceAll(odd, ".", "-")
		files, err := templateAs(odd, namespace, values)
		if err != nil {
			t.Fatalf("%s: %v", odd, err)
		}
		o, err := decode(files)
		if err != nil {
			t.Errorf("%s: %v", odd, err)
			continue
		}
		for _, d := range o.deployments {
			pod := d.Spec.Template.Spec
			got := []string{
				d.Labels["app.kubernetes.io/instance"], pod.ServiceAccountName, pod.ImagePullSecrets[0].Name,
				pod.Containers[0].EnvFrom[0].SecretRef.Name,
			}
			for _, v := range pod.Volumes {
				switch {
				case v.Projected != nil:
					got = append(got, v.Projected.Sources[0].Secret.Name)
				case v.Secret != nil:
					got = append(got, v.Secret.SecretName)
				case v.PersistentVolumeClaim != nil:
					got = append(got, v.PersistentVolumeClaim.ClaimName)
				}
			}
			if slices.ContainsFunc(got, func(s string) bool { return s != odd }) || d.Namespace != namespace {
				t.Errorf("%s became %q in %q", odd, got, d.Namespace)
			}
		}
	}
}

// Whoever asks for metrics that nobody can reach is told so.
func TestNotesTellOfMetricsOutOfReach(t *testing.T) {
	t.Parallel()
	const warning = "Prometheus cannot reach the metrics"
	values, _ := combination(0b10001)
	put("networkPolicy.enabled", true)(values)
	put("serviceMonitor.enabled", true)(values)
	for _, reach := range []bool{false, true} {
		if reach {
			put("networkPolicy.monitoring", []any{map[string]any{"namespaceSelector": map[string]any{}}})(values)
		}
		o, err := render(values)
		if err != nil || strings.Contains(o.notes, warning) == reach {
			t.Errorf("admitted: %v; got %v\n%s", reach, err, o.notes)
		}
	}
}

var yamlBlock = regexp.MustCompile("(?ms)^( *)```yaml\n(.*?)^ *```$")

// The values and the file of docs/kubernetes.md are rendered, and the program accepts its files.
func TestDocumentedValues(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/kubernetes.md")
	if err != nil {
		t.Fatal(err)
	}
	others := maps.Clone(outside)
	others["Secret/drawgate"] = outside["Secret/shared"]
	others["Secret/drawgate-providers"] = outside["Secret/providers"]
	n := 0
	for _, m := range yamlBlock.FindAllStringSubmatch(string(page), -1) {
		text := strings.ReplaceAll("\n"+m[2], "\n"+m[1], "\n")
		if !strings.Contains(text, "# values of the chart") { // a file, which the page installs with --set-file
			data, err := json.Marshal(text)
			if err != nil {
				t.Fatal(err)
			}
			text = fmt.Sprintf("image: {repository: registry.example.com/drawgate}\nsecret: drawgate\nserver: {config: %s}\n", data)
		}
		o := mustRender(t, text)
		o.fits(t)
		for _, d := range o.deployments {
			p := o.podOf(t, d.Name, others)
			validate(t, p, p.object(t, "ConfigMap/"+d.Name)["drawgate.yaml"], p.env(t))
			n++
		}
	}
	if n != 3 {
		t.Errorf("the page has %d pods, want 3", n)
	}
}

// The links in files lead to the dashboards and alerts, and Helm has followed them.
func TestDashboardsAndAlerts(t *testing.T) {
	t.Parallel()
	values, _ := combination(0b10000010001)
	o, err := render(values)
	if err != nil {
		t.Fatal(err)
	}
	for name, path := range map[string]string{
		"drawgate-limits.json": "../grafana", "drawgate-gateway.json": "../grafana",
		"drawgate-alerts.yaml": "../prometheus",
	} {
		want, err := os.ReadFile(filepath.Join(path, name))
		if err != nil {
			t.Fatal(err)
		}
		found := 0
		for _, c := range o.configMaps {
			if got, ok := c.Data[name]; ok && got == string(want) {
				found++
			}
		}
		if found != 1 {
			t.Errorf("%s is in %d ConfigMaps, want one", name, found)
		}
	}
}

// Helm's linter has nothing to say, with the default values and with others.
func TestLint(t *testing.T) {
	t.Parallel()
	few, _ := combination(0b10001)
	many, _ := combination(1<<len(options) - 1)
	for _, values := range []map[string]any{{}, few, many} {
		messages, err := linted(values)
		if err != nil {
			t.Error(err)
		}
		for _, m := range messages {
			t.Error(m)
		}
	}
}
