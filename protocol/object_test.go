package protocol_test

import (
	"fmt"
	"math"
	"testing"

	"rejoin/protocol"
)

func params(t *testing.T, raw string) protocol.Params {
	t.Helper()
	if err := protocol.ValidateJSON([]byte(raw)); err != nil {
		t.Fatalf("%s: %v", raw, err)
	}
	p, err := protocol.ParseParams([]byte(raw))
	if err != nil {
		t.Fatalf("ParseParams(%s): %v", raw, err)
	}
	return p
}

func TestParseParams(t *testing.T) {
	for _, raw := range []string{"", "null", " null ", "{}", " { } ", `{"a":1}`} {
		if _, err := protocol.ParseParams([]byte(raw)); err != nil {
			t.Errorf("ParseParams(%q): %v", raw, err)
		}
	}
	for _, raw := range []string{"[]", "1", `"x"`, "true"} {
		_, err := protocol.ParseParams([]byte(raw))
		if e, ok := protocol.AsError(err); !ok || e.Reason != protocol.ReasonInvalidParams {
			t.Errorf("ParseParams(%q): %v, want invalid_params", raw, err)
		}
	}
}

func TestParamsGetters(t *testing.T) {
	p := params(t, ` { "s" : "a\u0062\n" , "empty":"", "t":true,"f" : false, "n":7 ,"z":null,
		"l":[ "x" , "\u0079]" ], "none":[ ], "mixed":["x",1], "nested":[["x"]],
		"o":{"k":"v" , "w":"\"}"}, "deep":{"k":{"a":1}}, "e\u0073c":"yes", "N":8, "i":1.0 } `)
	get := map[string]func(string) (any, bool, error){
		"String":    func(n string) (any, bool, error) { return wrap(p.String(n)) },
		"Bool":      func(n string) (any, bool, error) { return wrap(p.Bool(n)) },
		"Uint":      func(n string) (any, bool, error) { return wrap(p.Uint(n)) },
		"Strings":   func(n string) (any, bool, error) { return wrap(p.Strings(n)) },
		"StringMap": func(n string) (any, bool, error) { return wrap(p.StringMap(n)) },
	}
	for _, c := range []struct{ getter, name, want string }{
		{"String", "s", "\"ab\\n\" true <nil>"},
		{"String", "empty", `"" true <nil>`},
		{"String", "esc", `"yes" true <nil>`},
		{"String", "S", `"" false <nil>`},
		{"String", "z", `"" false <nil>`},
		{"String", "n", `"" false n must be a string`},
		{"String", "o", `"" false o must be a string`},
		{"Bool", "t", `true true <nil>`},
		{"Bool", "f", `false true <nil>`},
		{"Bool", "n", `false false n must be true or false`},
		{"Bool", "s", `false false s must be true or false`},
		{"Bool", "missing", `false false <nil>`},
		{"Uint", "n", `0x7 true <nil>`},
		{"Uint", "N", `0x8 true <nil>`},
		{"Uint", "i", `0x0 false i must be an integer of at least 0`},
		{"Uint", "t", `0x0 false t must be an integer of at least 0`},
		{"Uint", "z", `0x0 false <nil>`},
		{"Strings", "l", `[]string{"x", "y]"} true <nil>`},
		{"Strings", "none", `[]string{} true <nil>`},
		{"Strings", "mixed", `[]string(nil) false mixed must be an array of strings`},
		{"Strings", "nested", `[]string(nil) false nested must be an array of strings`},
		{"Strings", "s", `[]string(nil) false s must be an array of strings`},
		{"Strings", "z", `[]string(nil) false <nil>`},
		{"StringMap", "o", `map[string]string{"k":"v", "w":"\"}"} true <nil>`},
		{"StringMap", "deep", `map[string]string(nil) false deep must be an object of strings`},
		{"StringMap", "l", `map[string]string(nil) false l must be an object`},
		{"StringMap", "z", `map[string]string(nil) false <nil>`},
	} {
		v, ok, err := get[c.getter](c.name)
		if got := fmt.Sprintf("%#v %t %v", v, ok, err); got != c.want {
			t.Errorf("%s(%q) = %s, want %s", c.getter, c.name, got, c.want)
		}
		if e, isErr := protocol.AsError(err); err != nil && (!isErr || e.Reason != protocol.ReasonInvalidParams) {
			t.Errorf("%s(%q): %v is not invalid_params", c.getter, c.name, err)
		}
	}
	for name, want := range map[string]bool{"s": true, "z": false, "missing": false} {
		if got := p.Has(name); got != want {
			t.Errorf("Has(%q) = %t, want %t", name, got, want)
		}
	}
	if raw, ok := p.Raw("z"); !ok || string(raw) != "null" {
		t.Errorf("Raw of null = %s, %t", raw, ok)
	}
	o, ok, err := p.Object("deep")
	if raw, _ := o.Raw("k"); !ok || err != nil || string(raw) != `{"a":1}` {
		t.Errorf("Object(deep) = %s, %t, %v", raw, ok, err)
	}
	if _, ok, err = p.Object("l"); ok || err == nil {
		t.Error("Object of an array passed")
	}
}

func wrap[T any](v T, ok bool, err error) (any, bool, error) { return v, ok, err }

func TestParamsUint(t *testing.T) {
	for _, c := range []struct {
		raw  string
		want uint64
		ok   bool
	}{
		{"0", 0, true},
		{"18446744073709551615", math.MaxUint64, true},
		{"18446744073709551616", math.MaxUint64, true},
		{"18446744073709551620", math.MaxUint64, true},
		{"99999999999999999999999999999999", math.MaxUint64, true},
		{"18446744073709551614", math.MaxUint64 - 1, true},
		{"-1", 0, false},
		{"-0", 0, false},
		{"1.0", 0, false},
		{"1e3", 0, false},
		{"0.5", 0, false},
		{`"1"`, 0, false},
		{"true", 0, false},
		{"[1]", 0, false},
		{"{}", 0, false},
	} {
		got, ok, err := params(t, `{"after":`+c.raw+`}`).Uint("after")
		if got != c.want || ok != c.ok || (err == nil) != c.ok {
			t.Errorf("Uint of %s = %d, %t, %v; want %d, %t", c.raw, got, ok, err, c.want, c.ok)
		}
	}
}

func TestRequired(t *testing.T) {
	e := protocol.Required("sessionId")
	if e.Message != "sessionId is required" || e.Code() != protocol.CodeInvalidParams {
		t.Errorf("Required = %d %s", e.Code(), e.Message)
	}
}

// FuzzParams checks that no text panics, valid or not.
func FuzzParams(f *testing.F) {
	for _, s := range append(jsonSeeds, `{"a":["x","y"],"b":{"c":"d"}}`, `{"a":`, `{"`, `{"a":["x`) {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		p, err := protocol.ParseParams(raw)
		if err != nil {
			return
		}
		for _, name := range []string{"a", "b", ""} {
			_, _, _ = p.String(name)
			_, _, _ = p.Bool(name)
			_, _, _ = p.Uint(name)
			_, _, _ = p.Strings(name)
			_, _, _ = p.StringMap(name)
			_, _, _ = p.Object(name)
		}
	})
}
