package arch

import (
	"go/ast"
	"path"
	"strings"
	"testing"
)

// TestNobodySleeps fails on time.Sleep, in tests too: a wait has a condition or
// a timer in a select.
func TestNobodySleeps(t *testing.T) {
	for _, f := range sources(t) {
		ast.Inspect(f.File, func(n ast.Node) bool {
			sel, ok := n.(*ast.SelectorExpr)
			if ok && sel.Sel.Name == "Sleep" && named(sel.X, "time") {
				t.Errorf("%s: time.Sleep", files.Position(n.Pos()))
			}
			return true
		})
	}
}

func named(x ast.Expr, name string) bool {
	id, ok := x.(*ast.Ident)
	return ok && id.Name == name
}

// TestStartersCheckForLeaks wants a TestMain, which is where the leak check
// stands, in every folder whose code starts goroutines and that has tests.
func TestStartersCheckForLeaks(t *testing.T) {
	starts, tested, checked := map[string]string{}, map[string]bool{}, map[string]bool{}
	for _, f := range sources(t) {
		dir := path.Dir(f.Path)
		if f.Test {
			tested[dir] = true
		}
		ast.Inspect(f.File, func(n ast.Node) bool {
			if startsGoroutine(n) && starts[dir] == "" && (!f.Test || strings.HasPrefix(dir, "tests/")) {
				starts[dir] = files.Position(n.Pos()).String()
			}
			if fn, ok := n.(*ast.FuncDecl); ok && f.Test && fn.Name.Name == "TestMain" {
				checked[dir] = true
			}
			return true
		})
	}
	for dir, where := range starts {
		if tested[dir] && !checked[dir] {
			t.Errorf("%s starts a goroutine (%s) and has no TestMain that checks for leaks", dir, where)
		}
		if !tested[dir] && !strings.HasPrefix(dir, "cmd/") && !strings.HasPrefix(dir, "tests/") {
			t.Errorf("%s starts a goroutine (%s) and has no tests", dir, where)
		}
	}
}

func startsGoroutine(n ast.Node) bool {
	switch n := n.(type) {
	case *ast.GoStmt:
		return true
	case *ast.CallExpr:
		sel, ok := n.Fun.(*ast.SelectorExpr)
		return ok && sel.Sel.Name == "Go" && len(n.Args) == 1
	}
	return false
}

// TestPackagesAreDocumented wants a package comment in every folder: in doc.go, or
// in the only file of a small package.
func TestPackagesAreDocumented(t *testing.T) {
	documented, code := map[string]bool{}, map[string]int{}
	for _, f := range sources(t) {
		if f.Test {
			continue
		}
		dir := path.Dir(f.Path)
		code[dir]++
		if f.Doc != nil {
			documented[dir] = path.Base(f.Path) == "doc.go" || documented[dir]
		}
	}
	for _, f := range sources(t) {
		if dir := path.Dir(f.Path); code[dir] == 1 && f.Doc != nil {
			documented[dir] = true
		}
	}
	for dir := range code {
		if !documented[dir] {
			t.Errorf("%s has no doc.go with a package comment", dir)
		}
	}
}
