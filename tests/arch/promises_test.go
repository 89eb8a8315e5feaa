package arch

import (
	"go/ast"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var (
	promiseID  = regexp.MustCompile(`\bI-[A-Z][0-9]+\b`)
	provesText = regexp.MustCompile(`Proves ((?:I-[A-Z][0-9]+(?:, | and |,? ?))+)`)
	testName   = regexp.MustCompile("`([a-z/-]+)(?: ((?:Test|Fuzz)[A-Za-z0-9_]+))?`")
)

// promises returns the rows of the table of promises in docs/ARCHITECTURE.md:
// id, promise, proved by, seen to fail with.
func promises(t *testing.T) map[string][]string {
	t.Helper()
	all := map[string][]string{}
	for _, row := range rows(section(t, read(t, "docs/ARCHITECTURE.md"), "## Promises")) {
		id := strings.Trim(row[0], "*")
		if !promiseID.MatchString(id) || len(row) != 4 {
			t.Fatalf("a row of Promises is not id, promise, test, mutation: %q", row)
		}
		if all[id] != nil {
			t.Errorf("%s is promised twice", id)
		}
		all[id] = row
	}
	if len(all) < 10 {
		t.Fatalf("only %d promises were found", len(all))
	}
	return all
}

// TestPromisesAreProved wants a test that names each promise, and no test that
// names another.
func TestPromisesAreProved(t *testing.T) {
	promised := promises(t)
	proved := map[string][]string{}
	for _, f := range sources(t) {
		if !f.Test || strings.HasPrefix(f.Path, "tests/harness/") || strings.HasPrefix(f.Path, "tests/arch/") {
			continue
		}
		for _, id := range provedBy(f.File) {
			proved[id] = append(proved[id], f.Path)
		}
	}
	for id := range promised {
		if len(proved[id]) == 0 {
			t.Errorf("no test proves %s", id)
		}
	}
	for id, paths := range proved {
		if promised[id] == nil {
			t.Errorf("%v name %s, which docs/ARCHITECTURE.md does not promise", paths, id)
		}
	}
}

// provedBy returns the ids after "Proves" in comments and in calls of Covers.
func provedBy(f *ast.File) []string {
	var ids []string
	for _, group := range f.Comments {
		text := strings.Join(strings.Fields(group.Text()), " ")
		for _, m := range provesText.FindAllStringSubmatch(text, -1) {
			ids = append(ids, promiseID.FindAllString(m[1], -1)...)
		}
	}
	ast.Inspect(f, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok {
			return true
		}
		if sel, ok := call.Fun.(*ast.SelectorExpr); !ok || sel.Sel.Name != "Covers" || !named(sel.X, "harness") {
			return true
		}
		for _, arg := range call.Args {
			if lit, ok := arg.(*ast.BasicLit); ok {
				ids = append(ids, promiseID.FindAllString(lit.Value, -1)...)
			}
		}
		return true
	})
	return ids
}

// TestPromisesNameTestsThatExist looks up each "folder TestName" of the table.
func TestPromisesNameTestsThatExist(t *testing.T) {
	exist := testNames(t)
	for id, row := range promises(t) {
		found := 0
		for _, m := range testName.FindAllStringSubmatch(row[2], -1) {
			if m[2] == "" {
				continue
			}
			found++
			if name := m[1] + " " + m[2]; !exist[name] {
				t.Errorf("%s is said to be proved by %q, which does not exist", id, name)
			}
		}
		if found == 0 {
			t.Errorf("%s names no test", id)
		}
		if len(row[3]) < 10 {
			t.Errorf("%s does not say with which mutation its test was seen to fail", id)
		}
	}
}

// TestProvesPattern keeps the pattern honest.
func TestProvesPattern(t *testing.T) {
	for text, want := range map[string][]string{
		"Proves I-J1.":                     {"I-J1"},
		"It looks. Proves I-J1 and I-B3.":  {"I-J1", "I-B3"},
		"Proves I-J1, I-J2 and I-W3 here.": {"I-J1", "I-J2", "I-W3"},
		"About I-J1 only.":                 nil,
	} {
		var got []string
		for _, m := range provesText.FindAllStringSubmatch(text, -1) {
			got = append(got, promiseID.FindAllString(m[1], -1)...)
		}
		if !slices.Equal(got, want) {
			t.Errorf("%q gives %v, want %v", text, got, want)
		}
	}
}
