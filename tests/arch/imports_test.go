package arch

import (
	"slices"
	"strings"
	"testing"
)

// mayImport is the one direction of imports: folder → the folders of this module
// that it may import. Folders below (internal packages, one per adapter) have the
// rights of the folder they stand in and may import it.
var mayImport = map[string][]string{
	"protocol":    {},
	"journal":     {"protocol"},
	"agent":       {"protocol"},
	"snapshot":    {"protocol", "agent", "journal"},
	"broker":      {"protocol", "journal", "snapshot"},
	"worker":      {"protocol", "agent", "journal", "snapshot"},
	"gateway":     {"protocol", "journal", "snapshot", "broker"},
	"gateway-tcp": {"protocol", "gateway"},
	"client":      {"protocol"},
	"cmd": {
		"protocol", "journal", "agent", "snapshot", "broker", "worker", "gateway", "gateway-tcp", "client",
	},
}

// mayUse lists the third-party modules by the folders that may import them.
var mayUse = map[string][]string{
	"github.com/nats-io/nats-server/v2":   {"journal"},
	"github.com/nats-io/nats.go":          {"journal"},
	"github.com/nats-io/nkeys":            {"journal"},
	"github.com/klauspost/compress":       {"journal", "snapshot"},
	"github.com/oklog/ulid/v2":            {"protocol", "journal"},
	"github.com/prometheus/client_golang": {"cmd"},
	"github.com/spf13/cobra":              {"cmd"},
	"github.com/goccy/go-yaml":            {"cmd"},
	"charm.land/bubbletea/v2":             {"cmd"},
	"charm.land/lipgloss/v2":              {"cmd"},
	"golang.org/x/sys":                    {"journal", "worker", "gateway-tcp", "cmd"},
	"github.com/minio/highwayhash":        {"journal"},
}

// TestImportsRunOneWay fails on an import against the table.
func TestImportsRunOneWay(t *testing.T) {
	for _, p := range packages(t) {
		top, _, _ := strings.Cut(p.folder(), "/")
		for _, path := range p.Imports {
			checkImport(t, p.folder(), top, path)
		}
		if top == "tests" {
			continue
		}
		for _, path := range append(slices.Clone(p.TestImports), p.XTestImports...) {
			if path == module+"/tests/harness" {
				continue // the leak check
			}
			checkImport(t, p.folder()+" (tests)", top, path)
		}
	}
}

func checkImport(t *testing.T, from, top, path string) {
	t.Helper()
	inside, isOurs := strings.CutPrefix(path, module+"/")
	if !isOurs {
		checkThirdParty(t, from, top, path)
		return
	}
	to, rest, _ := strings.Cut(inside, "/")
	switch {
	case from == "tests/harness":
		t.Errorf("%s imports %s: the oracle is independent of what it judges", from, path)
	case top == "tests":
		if to == "cmd" || to == "tests" && rest != "harness" && rest != "model" {
			t.Errorf("%s imports %s", from, path)
		}
	case to == top: // a folder's own packages
	default:
		allowed, known := mayImport[top]
		if !known {
			t.Errorf("folder %s has no row in the table of imports", top)
		}
		if !slices.Contains(allowed, to) {
			t.Errorf("%s imports %s: imports run protocol ← journal, agent ← snapshot ← broker, worker ← gateway ← gateway-tcp ← cmd", from, path)
		}
	}
}

func checkThirdParty(t *testing.T, from, top, path string) {
	t.Helper()
	if first, _, _ := strings.Cut(path, "/"); !strings.Contains(first, ".") {
		return // the standard library
	}
	for mod, folders := range mayUse {
		if path == mod || strings.HasPrefix(path, mod+"/") {
			if top != "tests" && !slices.Contains(folders, top) {
				t.Errorf("%s imports %s, which only %v may", from, path, folders)
			}
			return
		}
	}
	t.Errorf("%s imports %s, which is not in the table of dependencies", from, path)
}

// TestDependenciesAreExplained wants a row of CONTRIBUTING.md for every module
// that go.mod requires directly, and none for others.
func TestDependenciesAreExplained(t *testing.T) {
	var explained []string
	for _, row := range rows(section(t, read(t, "CONTRIBUTING.md"), "## Dependencies")) {
		explained = append(explained, strings.Trim(row[0], "`"))
	}
	required := directRequirements(read(t, "go.mod"))
	for _, mod := range required {
		if !slices.Contains(explained, mod) {
			t.Errorf("CONTRIBUTING.md does not explain %s", mod)
		}
	}
	for _, mod := range explained {
		if !slices.Contains(required, mod) {
			t.Errorf("CONTRIBUTING.md explains %s, which go.mod does not require directly", mod)
		}
	}
}

func directRequirements(gomod string) []string {
	var mods []string
	in := false
	for line := range strings.Lines(gomod) {
		line = strings.TrimSpace(line)
		switch {
		case line == "require (":
			in = true
		case line == ")":
			in = false
		case strings.Contains(line, "// indirect"):
		case in:
			mod, _, _ := strings.Cut(line, " ")
			mods = append(mods, mod)
		case strings.HasPrefix(line, "require "):
			mods = append(mods, strings.Fields(line)[1])
		}
	}
	return mods
}
