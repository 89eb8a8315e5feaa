package deploy_test

import (
	"strings"
	"testing"
)

// TestMountsHaveVolumes: what a Pod mounts it has, and what it has comes from a
// Secret or a ConfigMap that kustomization.yaml makes.
func TestMountsHaveVolumes(t *testing.T) {
	all := texts(t)
	made := map[string]bool{}
	for _, doc := range documents(t, "kustomization.yaml", all["deploy/kubernetes/kustomization.yaml"]) {
		for _, kind := range []string{"configMapGenerator", "secretGenerator"} {
			list, _ := doc.(fields)[kind].([]any)
			for _, g := range list {
				made[g.(fields)["name"].(string)] = true
			}
		}
	}
	pods := 0
	for path, text := range all {
		if !strings.HasPrefix(path, "deploy/kubernetes/") {
			continue
		}
		for _, doc := range documents(t, path, text) {
			spec, pod, ok := podOf(doc)
			if !ok {
				continue
			}
			pods++
			volumes := map[string]bool{}
			for _, list := range []any{pod["volumes"], spec["volumeClaimTemplates"]} {
				walk(list, func(m fields) {
					if name, ok := m["name"].(string); ok {
						volumes[name] = true
					}
				})
			}
			for _, c := range pod["containers"].([]any) {
				mounts, _ := c.(fields)["volumeMounts"].([]any)
				for _, m := range mounts {
					if name := m.(fields)["name"].(string); !volumes[name] {
						t.Errorf("%s: a mount wants volume %s, which the Pod has not", path, name)
					}
				}
			}
			walk(pod["volumes"], func(m fields) {
				for kind, key := range map[string]string{"secret": "secretName", "configMap": "name"} {
					source, ok := m[kind].(fields)
					name, _ := source[key].(string)
					if name == "" {
						name, _ = source["name"].(string)
					}
					if ok && !made[name] {
						t.Errorf("%s: nothing makes the %s %s", path, kind, name)
					}
				}
			})
		}
	}
	if pods != 4 {
		t.Errorf("%d Pods were found, want 4: nats, broker, gateway, worker", pods)
	}
}

// podOf returns the specifications of a workload and of its Pods.
func podOf(doc any) (spec, pod fields, ok bool) {
	m, _ := doc.(fields)
	spec, _ = m["spec"].(fields)
	template, _ := spec["template"].(fields)
	pod, ok = template["spec"].(fields)
	return spec, pod, ok
}

// TestSelectorsFindPods: a selector that finds no Pod selects nothing and says so to
// nobody: a budget that protects nothing, a policy that lets nobody in.
func TestSelectorsFindPods(t *testing.T) {
	all := texts(t)
	apps := map[string]bool{}
	for path, text := range all {
		if !strings.HasPrefix(path, "deploy/kubernetes/") {
			continue
		}
		for _, doc := range documents(t, path, text) {
			if spec, _, ok := podOf(doc); ok {
				labels := spec["template"].(fields)["metadata"].(fields)["labels"].(fields)
				apps[labels["app"].(string)] = true
			}
		}
	}
	selectors := 0
	want := func(path string, app any) {
		selectors++
		if name, _ := app.(string); !apps[name] {
			t.Errorf("%s: a selector wants app %v, which no Pod has", path, app)
		}
	}
	for path, text := range all {
		if !strings.HasPrefix(path, "deploy/kubernetes/") {
			continue
		}
		for _, doc := range documents(t, path, text) {
			walk(doc, func(m fields) {
				for key, v := range m {
					switch s, _ := v.(fields); {
					case s == nil:
					case key == "matchLabels" && s["app"] != nil, key == "selector" && s["app"] != nil:
						want(path, s["app"])
					}
				}
				if m["key"] == "app" {
					values, _ := m["values"].([]any)
					for _, v := range values {
						want(path, v)
					}
				}
			})
		}
	}
	if selectors < 12 {
		t.Errorf("only %d selectors were found", selectors)
	}
}
