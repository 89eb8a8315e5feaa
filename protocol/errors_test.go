package protocol

import (
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"strconv"
	"strings"
	"testing"
)

// declaredReasons returns the constants of type Reason in errors.go.
func declaredReasons(t *testing.T) []Reason {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), "errors.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	var list []Reason
	ast.Inspect(file, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok {
			return true
		}
		if kind, ok := spec.Type.(*ast.Ident); !ok || kind.Name != "Reason" {
			return true
		}
		for _, v := range spec.Values {
			s, err := strconv.Unquote(v.(*ast.BasicLit).Value)
			if err != nil {
				t.Fatal(err)
			}
			list = append(list, Reason(s))
		}
		return true
	})
	return list
}

func TestEveryReasonHasACode(t *testing.T) {
	declared := declaredReasons(t)
	if len(declared) == 0 || len(declared) != len(reasons) {
		t.Errorf("%d reasons are declared, %d have a code", len(declared), len(reasons))
	}
	for _, r := range declared {
		row, ok := reasons[r]
		if !ok {
			t.Errorf("reason %s has no code", r)
			continue
		}
		if e := Errorf(r, "x"); e.Code() != row.code || e.Retryable != row.retryable || row.code >= 0 {
			t.Errorf("reason %s: code %d, retryable %t", r, e.Code(), e.Retryable)
		}
	}
}

func TestEveryReasonIsDocumented(t *testing.T) {
	doc, err := os.ReadFile("../docs/protocol.md")
	if err != nil {
		t.Fatalf("the protocol's document: %v", err)
	}
	for _, r := range declaredReasons(t) {
		if !strings.Contains(string(doc), string(r)) {
			t.Errorf("docs/protocol.md does not name the reason %s", r)
		}
		if code := strconv.Itoa(reasons[r].code); !strings.Contains(string(doc), code) {
			t.Errorf("docs/protocol.md does not name the code %s", code)
		}
	}
}

func TestAsError(t *testing.T) {
	e := ErrSessionNotFound("X")
	if e.Message != "session X not found" || e.Code() != CodeSessionNotFound {
		t.Errorf("ErrSessionNotFound = %d %s", e.Code(), e.Message)
	}
	if got, ok := AsError(fmt.Errorf("find session: %w", e)); !ok || got != e {
		t.Errorf("AsError of a wrapped error = %v, %t", got, ok)
	}
	if _, ok := AsError(errors.New("other")); ok {
		t.Error("AsError of another error is ok")
	}
	if got := (&Error{Reason: "no such reason"}).Code(); got != CodeInternal {
		t.Errorf("code of an unknown reason = %d", got)
	}
}
