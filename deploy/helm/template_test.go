package helm_test

import (
	"sync"

	"helm.sh/helm/v4/pkg/chart/common"
	"helm.sh/helm/v4/pkg/chart/common/util"
	v2 "helm.sh/helm/v4/pkg/chart/v2"
	"helm.sh/helm/v4/pkg/chart/v2/lint"
	"helm.sh/helm/v4/pkg/chart/v2/lint/support"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"helm.sh/helm/v4/pkg/engine"
	"sigs.k8s.io/yaml"
)

// chart reads the chart.
var chart = sync.OnceValues(func() (*v2.Chart, error) { return loader.Load("drawgate") })

// template renders the templates as "helm template release" does, in the namespace quotas.
func template(values map[string]any) (map[string]string, error) {
	return templateAs("release", "quotas", values)
}

// templateAs does it for another release, in another namespace.
func templateAs(name, namespace string, values map[string]any) (map[string]string, error) {
	c, err := chart()
	if err != nil {
		return nil, err
	}
	values, err = copied(values) // Helm changes them
	if err != nil {
		return nil, err
	}
	caps := common.DefaultCapabilities.Copy()
	caps.KubeVersion = common.KubeVersion{Version: "v1.30.0", Major: "1", Minor: "30"}
	release := common.ReleaseOptions{Name: name, Namespace: namespace, IsInstall: true, Revision: 1}
	all, err := util.ToRenderValues(c, values, release, caps)
	if err != nil {
		return nil, err
	}
	return engine.Render(c, all)
}

func copied(values map[string]any) (all map[string]any, err error) {
	text, err := yaml.Marshal(values)
	if err != nil {
		return nil, err
	}
	return all, yaml.Unmarshal(text, &all)
}

// linted returns what Helm's linter has to say, but for hints such as that the chart has no icon.
func linted(values map[string]any) (messages []string, err error) {
	if values, err = copied(values); err != nil {
		return nil, err
	}
	for _, m := range lint.RunAll("drawgate", values, "quotas").Messages {
		if m.Severity > support.InfoSev {
			messages = append(messages, m.Error())
		}
	}
	return messages, nil
}
