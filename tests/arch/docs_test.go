package arch

import (
	"go/ast"
	"go/constant"
	"go/importer"
	"go/token"
	"go/types"
	"path"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"rejoin/protocol"
)

// TestReasonsHaveRows compares the error table of docs/protocol.md with the one
// of the code, both ways: reason, code and whether to retry.
func TestReasonsHaveRows(t *testing.T) {
	inCode := map[protocol.Reason]bool{}
	for _, f := range sources(t) {
		if f.Path != "protocol/errors.go" {
			continue
		}
		ast.Inspect(f.File, func(n ast.Node) bool {
			spec, ok := n.(*ast.ValueSpec)
			if !ok || !isNamed(spec.Type, "Reason") || len(spec.Values) != 1 {
				return true
			}
			value, err := strconv.Unquote(spec.Values[0].(*ast.BasicLit).Value)
			if err != nil {
				t.Fatal(err)
			}
			inCode[protocol.Reason(value)] = true
			return true
		})
	}
	inDocs := map[protocol.Reason]bool{}
	for _, row := range rows(section(t, read(t, "docs/protocol.md"), "## Errors")) {
		reason := protocol.Reason(strings.Trim(row[1], "`"))
		inDocs[reason] = true
		if !inCode[reason] {
			t.Errorf("docs/protocol.md has a row for %q, the code has no such reason", reason)
			continue
		}
		e := protocol.Errorf(reason, "x")
		if strconv.Itoa(e.Code()) != row[0] {
			t.Errorf("%s: docs say code %s, the code %d", reason, row[0], e.Code())
		}
		if retry := map[bool]string{true: "yes", false: "no"}[e.Retryable]; row[2] != retry {
			t.Errorf("%s: docs say retryable %q, the code %q", reason, row[2], retry)
		}
	}
	for reason := range inCode {
		if !inDocs[reason] {
			t.Errorf("reason %q has no row in docs/protocol.md", reason)
		}
	}
}

func isNamed(x ast.Expr, name string) bool { return x != nil && named(x, name) }

// TestLimitsHaveRows compares the limits of docs/ARCHITECTURE.md with
// protocol/limits.go, both ways, with their values.
func TestLimitsHaveRows(t *testing.T) {
	inCode := limits(t)
	inDocs := map[string]bool{}
	for _, row := range rows(section(t, read(t, "docs/ARCHITECTURE.md"), "## Limits")) {
		name := strings.Trim(row[0], "`")
		value, known := inCode[name]
		if !known {
			if strings.HasPrefix(row[0], "`") {
				t.Errorf("docs/ARCHITECTURE.md has limit %s, protocol/limits.go has not", name)
			}
			continue
		}
		inDocs[name] = true
		if got := parseFigure(t, name, row[1]); got != value {
			t.Errorf("%s: docs say %s (%d), the code %d", name, row[1], got, value)
		}
	}
	for name := range inCode {
		if !inDocs[name] {
			t.Errorf("limit %s has no row in docs/ARCHITECTURE.md", name)
		}
	}
}

// TestLimitsAreKept: docs/limits.md says of each limit what happens at it, what
// counts it and which test reaches it; the test is there, the metric is
// documented, and what is counted by its own name is counted in the code.
func TestLimitsAreKept(t *testing.T) {
	inCode, seen, tests, counted := limits(t), map[string]bool{}, testNames(t), texts(t)
	operations := read(t, "docs/operations.md")
	for _, row := range rows(read(t, "docs/limits.md")) {
		name := strings.Trim(row[0], "`")
		if _, known := inCode[name]; !known || seen[name] || len(row) != 4 {
			t.Errorf("docs/limits.md: %q is no limit, there twice, or has not four columns", row[0])
			continue
		}
		seen[name] = true
		for _, test := range strings.Split(row[3], ", ") {
			if !tests[strings.Trim(test, "`")] {
				t.Errorf("%s: there is no test %s", name, test)
			}
		}
		if row[1] == "" {
			t.Errorf("%s: what happens at it?", name)
		}
		metrics := metricPattern.FindAllStringSubmatch(row[2], -1)
		if len(metrics) == 0 && !strings.HasPrefix(row[2], "– ") {
			t.Errorf("%s: %q is no metric and does not say why there is none", name, row[2])
		}
		for _, m := range metrics {
			if !strings.Contains(operations, "| `"+m[1]+"` |") {
				t.Errorf("%s: metric %s is not in docs/operations.md", name, m[1])
			}
			label := m[2]
			if label == "" {
				label = name
			}
			if m[1] == "rejoin_refused_total" && !counted[label] {
				t.Errorf("%s: nothing in the code counts under the name %s", name, label)
			}
		}
	}
	for name := range inCode {
		if !seen[name] {
			t.Errorf("limit %s has no row in docs/limits.md", name)
		}
	}
}

// metricPattern finds a metric, and the limit by which it counts if another's.
var metricPattern = regexp.MustCompile("`(rejoin_[a-z_]+)(?:\\{(?:limit|reason)=\"(\\w+)\"\\})?`")

// texts are the string literals of the product.
func texts(t *testing.T) map[string]bool {
	t.Helper()
	all := map[string]bool{}
	for _, f := range sources(t) {
		if f.Test || strings.HasPrefix(f.Path, "tests/") {
			continue
		}
		ast.Inspect(f.File, func(n ast.Node) bool {
			if lit, ok := n.(*ast.BasicLit); ok && lit.Kind == token.STRING {
				all[strings.Trim(lit.Value, "`\"")] = true
			}
			return true
		})
	}
	return all
}

// testNames are the tests that there are, as "gateway TestOverload".
func testNames(t *testing.T) map[string]bool {
	t.Helper()
	all := map[string]bool{}
	for _, f := range sources(t) {
		for _, d := range f.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok && f.Test && fn.Recv == nil {
				all[path.Dir(f.Path)+" "+fn.Name.Name] = true
			}
		}
	}
	return all
}

// limits evaluates the constants of protocol/limits.go.
func limits(t *testing.T) map[string]int64 {
	t.Helper()
	var file *ast.File
	for _, f := range sources(t) {
		if f.Path == "protocol/limits.go" {
			file = f.File
		}
	}
	if file == nil {
		t.Fatal("protocol/limits.go is gone")
	}
	conf := types.Config{Importer: importer.ForCompiler(token.NewFileSet(), "source", nil)}
	pkg, err := conf.Check("rejoin/protocol", files, []*ast.File{file}, nil)
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]int64{}
	for _, name := range pkg.Scope().Names() {
		c, ok := pkg.Scope().Lookup(name).(*types.Const)
		if !ok {
			continue
		}
		v, exact := constant.Int64Val(constant.ToInt(c.Val()))
		if !exact {
			t.Fatalf("%s is no integer", name)
		}
		all[name] = v
	}
	return all
}

// parseFigure reads "64", "4 MiB", "10 s" as the code counts: bytes and
// nanoseconds.
func parseFigure(t *testing.T, name, text string) int64 {
	t.Helper()
	number, unit, _ := strings.Cut(text, " ")
	n, err := strconv.ParseInt(strings.ReplaceAll(number, ",", ""), 10, 64)
	if err != nil {
		t.Fatalf("%s: %q is no figure", name, text)
	}
	factor, known := map[string]int64{
		"": 1, "B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "ms": 1e6, "s": 1e9, "min": 60e9,
	}[unit]
	if !known {
		t.Fatalf("%s: unit %q", name, unit)
	}
	return n * factor
}
