// Package kubernetes_test holds the example for Kubernetes against the program: its ports, its health
// endpoints, and the configuration that a pod puts together.
package kubernetes_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.yaml.in/yaml/v3"

	"github.com/quorate/quorate/internal/cli"
	"github.com/quorate/quorate/internal/config"
)

// object is what the test looks at of an object of Kubernetes.
type object struct {
	Kind     string
	Metadata struct{ Name string }
	Data     map[string]string
	Spec     struct {
		PublishNotReadyAddresses bool
		PodManagementPolicy      string
		ServiceName              string
		MaxUnavailable           int
		Selector                 map[string]any
		Ports                    []port
		Template                 struct {
			Metadata struct{ Labels map[string]any }
			Spec     struct {
				InitContainers []struct{ Command []string }
				Containers     []struct {
					Ports                                       []port
					StartupProbe, LivenessProbe, ReadinessProbe probe
				}
			}
		}
	}
}

type probe struct {
	HTTPGet                         struct{ Path, Port string }
	PeriodSeconds, FailureThreshold int
}

type port struct {
	Name, TargetPort    string
	Port, ContainerPort int
}

// objects returns the objects of the example, by kind and name.
func objects(t *testing.T) map[string]object {
	text, err := os.ReadFile("quorate.yaml")
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]object{}
	for d := yaml.NewDecoder(bytes.NewReader(text)); ; {
		var document any
		if err := d.Decode(&document); errors.Is(err, io.EOF) {
			return found
		} else if err != nil {
			t.Fatal(err)
		}
		// By way of JSON, which finds a field in whatever case its name is.
		b, err := json.Marshal(document)
		if err != nil {
			t.Fatal(err)
		}
		var o object
		if err := json.Unmarshal(b, &o); err != nil {
			t.Fatal(err)
		}
		found[o.Kind+" "+o.Metadata.Name] = o
	}
}

// nodeConfig returns the configuration that the pod quorate-0 puts together.
func nodeConfig(t *testing.T, settings string) config.Config {
	dir := t.TempDir()
	var nodes []string
	for _, pod := range []string{"quorate-0", "quorate-1", "quorate-2"} {
		nodes = append(nodes, pod+"="+pod+".quorate-peers.orders.svc.cluster.local")
	}
	args := []string{"init", "--cluster", "orders", "--data-dir", "/var/lib/quorate/data", "--nodes", strings.Join(nodes, ","), "--out", filepath.Join(dir, "cluster")}
	if code := cli.Main(t.Context(), args, io.Discard, os.Stderr, cli.Deps{}); code != 0 {
		t.Fatalf("quorate init ends with %d", code)
	}
	file := filepath.Join(dir, "cluster", "quorate-0", "node.toml")
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, append(text, settings...), 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := config.Load(file)
	if err == nil {
		err = c.Validate()
	}
	if err != nil {
		t.Fatalf("the configuration of a pod is wrong: %v", err)
	}
	return c
}

func TestExample(t *testing.T) {
	all := objects(t)
	set := all["StatefulSet quorate"].Spec
	if set.PodManagementPolicy != "Parallel" {
		t.Error("pods that start one after the other never begin a cluster")
	}
	if o := all["PodDisruptionBudget quorate"]; o.Spec.MaxUnavailable != 1 {
		t.Errorf("%d nodes may be taken away at a time, want 1", o.Spec.MaxUnavailable)
	}
	if !all["Service "+set.ServiceName].Spec.PublishNotReadyAddresses {
		t.Error("agents that are not ready do not find each other")
	}
	if len(set.Template.Spec.Containers) != 1 {
		t.Fatalf("a pod has %d containers, want 1", len(set.Template.Spec.Containers))
	}
	container := set.Template.Spec.Containers[0]

	// The ports are those of the configuration, which is right.
	c := nodeConfig(t, all["ConfigMap quorate-settings"].Data["settings.toml"])
	listens := map[string]string{"read-write": c.Router.ReadWrite, "read-only": c.Router.ReadOnly, "api": c.API.Listen, "peers": c.Members[0].Peer}
	for _, p := range container.Ports {
		if got := fmt.Sprint(p.ContainerPort); !strings.HasSuffix(listens[p.Name], ":"+got) {
			t.Errorf("port %s is %s, and the agent listens on %q", p.Name, got, listens[p.Name])
		}
	}
	// Reading needs a token, which the pod has where the configuration looks for it.
	if first := set.Template.Spec.InitContainers; c.API.TokensFile == "" || len(first) != 1 || !strings.Contains(strings.Join(first[0].Command, "\n"), "cat /nodes/tokens > "+c.API.TokensFile+"\n") {
		t.Errorf("no init container puts the tokens into api.tokens_file %q", c.API.TokensFile)
	}
	// Each port has a service, whose pods are the set's.
	served := map[string]bool{}
	for name, o := range all {
		if o.Kind != "Service" {
			continue
		}
		if d := cmp.Diff(set.Template.Metadata.Labels, o.Spec.Selector); d != "" {
			t.Errorf("%s selects other pods (-pods' labels +selector):\n%s", name, d)
		}
		for _, p := range o.Spec.Ports {
			served[p.TargetPort] = true
			if !strings.HasSuffix(listens[p.TargetPort], fmt.Sprintf(":%d", p.Port)) {
				t.Errorf("%s leads to port %d, and the agent listens on %q", name, p.Port, listens[p.TargetPort])
			}
		}
	}
	for name := range listens {
		if !served[name] {
			t.Errorf("no service leads to port %s", name)
		}
	}
	for want, got := range map[string]probe{"/liveness": container.LivenessProbe, "/readiness": container.ReadinessProbe} {
		if got.HTTPGet.Path != want || got.HTTPGet.Port != "api" {
			t.Errorf("a probe asks %s at port %s, want %s at port api", got.HTTPGet.Path, got.HTTPGet.Port, want)
		}
	}
	// An agent that reads its log answers nothing: 16 GiB take minutes.
	if p := container.StartupProbe; p.HTTPGet != container.LivenessProbe.HTTPGet || p.PeriodSeconds*p.FailureThreshold < 1800 {
		t.Errorf("while it starts: %+v", p)
	}
}
