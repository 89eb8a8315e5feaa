package arch

import (
	"encoding/json"
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"rejoin/tests/harness"
)

const module = "rejoin"

// listed is what these tests need of `go list -json`.
type listed struct {
	Dir          string
	ImportPath   string
	Imports      []string
	TestImports  []string
	XTestImports []string
}

// folder returns the package's path inside the module; the root is ".".
func (p *listed) folder() string {
	if p.ImportPath == module {
		return "."
	}
	return strings.TrimPrefix(p.ImportPath, module+"/")
}

func root(t *testing.T) string {
	t.Helper()
	dir, err := harness.Root()
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// packages lists the module's packages.
func packages(t *testing.T) []listed {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "list", "-e", "-json=Dir,ImportPath,Imports,TestImports,XTestImports", "./...")
	cmd.Dir = root(t)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	var all []listed
	for d := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p listed
		err := d.Decode(&p)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, p)
	}
	if len(all) < 8 {
		t.Fatalf("go list found only %d packages", len(all))
	}
	return all
}

// source is one parsed Go file; Path is relative to the module.
type source struct {
	Path string
	Test bool
	*ast.File
}

var files = token.NewFileSet()

// sources parses every Go file of the module.
func sources(t *testing.T) []source {
	t.Helper()
	var all []source
	top := root(t)
	err := filepath.WalkDir(top, func(path string, d os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := d.Name()
		if d.IsDir() {
			if path != top && (strings.HasPrefix(name, ".") || name == "testdata") {
				return filepath.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(name, ".go") {
			return nil
		}
		f, err := parser.ParseFile(files, path, nil, parser.ParseComments)
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(top, path)
		all = append(all, source{Path: filepath.ToSlash(rel), Test: strings.HasSuffix(name, "_test.go"), File: f})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// read returns a file of the module as text.
func read(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(root(t), path))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// section returns the lines of a Markdown document under a heading, up to the
// next one of the same or a higher level.
func section(t *testing.T, doc, heading string) string {
	t.Helper()
	level := len(heading) - len(strings.TrimLeft(heading, "#"))
	var in []string
	found := false
	for line := range strings.Lines(doc) {
		trimmed := strings.TrimRight(line, "\n")
		marks := len(trimmed) - len(strings.TrimLeft(trimmed, "#"))
		switch {
		case trimmed == heading:
			found = true
		case found && marks > 0 && marks <= level && strings.HasPrefix(trimmed[marks:], " "):
			return strings.Join(in, "")
		case found:
			in = append(in, line)
		}
	}
	if !found {
		t.Fatalf("no heading %q", heading)
	}
	return strings.Join(in, "")
}

// rows returns the cells of the Markdown table rows in text, without heads and rules.
func rows(text string) [][]string {
	var all [][]string
	var table [][]string
	flush := func() {
		if len(table) > 2 {
			all = append(all, table[2:]...)
		}
		table = nil
	}
	for line := range strings.Lines(text + "\n") {
		line = strings.TrimSpace(line)
		if !strings.HasPrefix(line, "|") {
			flush()
			continue
		}
		var cells []string
		for _, cell := range strings.Split(strings.Trim(line, "|"), "|") {
			cells = append(cells, strings.TrimSpace(cell))
		}
		table = append(table, cells)
	}
	flush()
	return all
}
