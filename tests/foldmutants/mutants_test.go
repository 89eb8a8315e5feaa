// Package foldmutants_test takes the cases of the folds' switches away, one at a
// time, and expects the tests of the package to notice. It runs for minutes, so
// only with FOLD_MUTANTS=1.
package foldmutants_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"go/ast"
	"go/format"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// folds are the files whose cases must all matter.
var folds = []string{
	"agent/pi/fold*.go", "agent/rpi/fold.go", "agent/lines/fold.go", "agent/state.go", "agent/fault.go", "agent/question.go", "snapshot/state.go",
}

func TestEveryCaseMatters(t *testing.T) {
	if os.Getenv("FOLD_MUTANTS") != "1" {
		t.Skip("set FOLD_MUTANTS=1: one test run per case")
	}
	root, err := filepath.Abs(filepath.Join("..", ".."))
	if err != nil {
		t.Fatal(err)
	}
	total := 0
	for _, pattern := range folds {
		files, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil || len(files) == 0 { // a pattern that fits nothing any more
			t.Fatalf("%s: %v, %v", pattern, files, err)
		}
		for _, file := range files {
			if strings.HasSuffix(file, "_test.go") {
				continue
			}
			for n := 0; ; n++ {
				name, mutant, more := without(t, file, n)
				if !more {
					break
				}
				total++
				name = filepath.Base(filepath.Dir(file)) + "/" + filepath.Base(file) + " " + name
				t.Run(name, func(t *testing.T) { noticed(t, root, file, mutant) })
			}
		}
	}
	if total < 90 {
		t.Errorf("only %d cases found", total)
	}
}

// without returns the source of a file without its n-th case: a clause, or one
// value of a clause that has several. Of a switch over conditions the case stays
// and its condition never holds, so that what it names is still used.
func without(t *testing.T, file string, n int) (name string, source []byte, more bool) {
	t.Helper()
	set := token.NewFileSet()
	tree, err := parser.ParseFile(set, file, nil, parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	tagless := map[*ast.BlockStmt]bool{} // bodies of switches over conditions
	ast.Inspect(tree, func(node ast.Node) bool {
		if s, ok := node.(*ast.SwitchStmt); ok && s.Tag == nil {
			tagless[s.Body] = true
		}
		block, ok := node.(*ast.BlockStmt)
		if !ok || more {
			return !more
		}
		for i, stmt := range block.List {
			clause, ok := stmt.(*ast.CaseClause)
			if !ok {
				continue
			}
			values := max(1, len(clause.List))
			if n >= values {
				n -= values
				continue
			}
			name, more = fmt.Sprintf("%d %s", set.Position(clause.Pos()).Line, label(set, clause, n)), true
			if len(clause.List) > 0 && tagless[block] {
				clause.List[n] = &ast.BinaryExpr{X: ast.NewIdent("false"), Op: token.LAND, Y: &ast.ParenExpr{X: clause.List[n]}}
				return false
			}
			if values > 1 {
				clause.List = append(clause.List[:n:n], clause.List[n+1:]...)
				return false
			}
			block.List = append(block.List[:i:i], block.List[i+1:]...)
			return false
		}
		return true
	})
	if !more {
		return "", nil, false
	}
	tree.Comments = nil // those of the case would float
	var b bytes.Buffer
	if err := format.Node(&b, set, tree); err != nil {
		t.Fatal(err)
	}
	return name, b.Bytes(), true
}

func label(set *token.FileSet, c *ast.CaseClause, value int) string {
	if len(c.List) == 0 {
		return "default"
	}
	var b bytes.Buffer
	if err := format.Node(&b, set, c.List[value]); err != nil {
		return "?"
	}
	return b.String()
}

// noticed runs the tests of the file's package with the mutant in its place.
func noticed(t *testing.T, root, file string, mutant []byte) {
	t.Helper()
	dir := t.TempDir()
	replaced := filepath.Join(dir, filepath.Base(file))
	if err := os.WriteFile(replaced, mutant, 0o600); err != nil {
		t.Fatal(err)
	}
	overlay, err := json.Marshal(map[string]map[string]string{"Replace": {file: replaced}})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "overlay.json"), overlay, 0o600); err != nil {
		t.Fatal(err)
	}
	pkg, err := filepath.Rel(root, filepath.Dir(file))
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "go", "test", "-count=1", "-vet=off", "-failfast",
		"-overlay", filepath.Join(dir, "overlay.json"), "./"+filepath.ToSlash(pkg))
	cmd.Dir = root
	out, err := cmd.CombinedOutput()
	switch {
	case err == nil:
		t.Error("without this case every test passes")
	case bytes.Contains(out, []byte("[build failed]")) || bytes.Contains(out, []byte("[setup failed]")):
		t.Errorf("the mutant does not compile:\n%s", out)
	case !bytes.Contains(out, []byte("FAIL")):
		t.Errorf("the tests did not run:\n%s", out)
	}
}
