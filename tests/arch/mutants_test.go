package arch

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	bracketed   = regexp.MustCompile(`\(([a-z0-9]+(?:-[a-z0-9]+)+)\)`)
	patchHeader = regexp.MustCompile(`^Promise: (I-[A-Z][0-9]+)\nMistake: .+\nRun: .+\n`)
)

// TestMutantsOfPromises wants a patch for each name in brackets in the table of
// promises, and such a name for each promise.
func TestMutantsOfPromises(t *testing.T) {
	for id, row := range promises(t) {
		names := bracketed.FindAllStringSubmatch(row[3], -1)
		if len(names) == 0 {
			t.Errorf("%s names no patch", id)
		}
		for _, m := range names {
			text := readIfThere(t, "tests/mutants/"+m[1]+".mutant.patch")
			if h := patchHeader.FindStringSubmatch(text); h == nil || h[1] != id {
				t.Errorf("%s is said to be seen to fail with %s, whose patch does not say so", id, m[1])
			}
		}
	}
}

// TestMutantsApply: every patch fits the tree as it is, is about a promise, and
// is named in tests/README.md.
func TestMutantsApply(t *testing.T) {
	promised, readme := promises(t), read(t, "tests/README.md")
	patches, err := filepath.Glob(filepath.Join(root(t), "tests/mutants/*.patch"))
	if err != nil || len(patches) < len(promised) {
		t.Fatalf("%d patches for %d promises: %v", len(patches), len(promised), err)
	}
	for _, file := range patches {
		name := filepath.Base(file)
		apply := exec.Command("git", "apply", "--check", file)
		apply.Dir = root(t)
		if out, err := apply.CombinedOutput(); err != nil {
			t.Errorf("%s does not apply: %v\n%s", name, err, out)
		}
		if h := patchHeader.FindStringSubmatch(read(t, "tests/mutants/"+name)); h == nil || promised[h[1]] == nil {
			t.Errorf("%s does not begin with Promise:, Mistake: and Run:, or with no promise", name)
		}
		if short, _, _ := strings.Cut(name, "."); !strings.Contains(readme, short) {
			t.Errorf("tests/README.md does not name %s", short)
		}
	}
}

// readIfThere is read for a file that may be missing: then it is empty.
func readIfThere(t *testing.T, path string) string {
	t.Helper()
	if _, err := os.Stat(filepath.Join(root(t), path)); err != nil {
		return ""
	}
	return read(t, path)
}
