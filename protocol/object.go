package protocol

import (
	"bytes"
	"math"
	"slices"
	"strings"
)

// Params are the members of a request's params object. Names are
// case-sensitive. Of a repeated name the last one counts (requests have none).
// Values alias the request's bytes; what the getters decode is a copy.
type Params struct{ members []member }

type member struct {
	name  []byte // decoded
	value []byte
}

// Required returns the invalid_params error for a member that is not there.
func Required(name string) *Error { return Errorf(ReasonInvalidParams, "%s is required", name) }

// ParseParams takes a value that ValidateJSON has passed apart. Nil or null is
// an empty object; anything but an object is invalid_params.
func ParseParams(raw []byte) (Params, error) {
	p, ok := parseObject(raw)
	if !ok {
		return Params{}, Errorf(ReasonInvalidParams, "params must be an object")
	}
	return p, nil
}

func parseObject(raw []byte) (Params, bool) {
	raw = bytes.TrimSpace(raw)
	if len(raw) == 0 || string(raw) == "null" {
		return Params{}, true
	}
	if raw[0] != '{' {
		return Params{}, false
	}
	return Params{members: parseMembers(raw, make([]member, 0, 8))}, true
}

// parseMembers appends the members of the object at the start of b.
func parseMembers(b []byte, members []member) []member {
	i := skipSpace(b, 1)
	for i < len(b) && b[i] == '"' {
		end := stringEnd(b, i)
		name := b[i+1 : max(i+1, end-1)]
		i = skipSpace(b, skipSpace(b, end)+1) // the colon
		if i >= len(b) {
			break
		}
		if end = valueEnd(b, i); end == i {
			break
		}
		members = append(members, member{name: unescape(name, 0), value: b[i:end:end]})
		i = skipSpace(b, skipSpace(b, end)+1) // the comma or brace
	}
	return members
}

// get returns the member of that name unless it is absent or null.
func (p Params) get(name string) ([]byte, bool) {
	v, ok := p.Raw(name)
	return v, ok && string(v) != "null"
}

func wrongType(name, want string) error {
	return Errorf(ReasonInvalidParams, "%s must be %s", name, want)
}

// Has reports whether the member is there and not null.
func (p Params) Has(name string) bool {
	_, ok := p.get(name)
	return ok
}

// Unknown returns the first member whose name is none of names.
func (p Params) Unknown(names ...string) (string, bool) {
	for _, m := range p.members {
		if !slices.Contains(names, string(m.name)) {
			return string(m.name), true
		}
	}
	return "", false
}

// Each getter returns zero, false and nil for a member that is absent or null,
// and an invalid_params error that names the member for one of the wrong type.

// Raw returns the member's bytes, also where they are null.
func (p Params) Raw(name string) (RawJSON, bool) {
	for i := len(p.members) - 1; i >= 0; i-- {
		if string(p.members[i].name) == name {
			return p.members[i].value, true
		}
	}
	return nil, false
}

// String returns the text of a string.
func (p Params) String(name string) (string, bool, error) {
	v, ok := p.get(name)
	if !ok {
		return "", false, nil
	}
	if v[0] != '"' {
		return "", false, wrongType(name, "a string")
	}
	return string(unquote(v)), true, nil
}

// Bool returns true or false.
func (p Params) Bool(name string) (bool, bool, error) {
	v, ok := p.get(name)
	if !ok {
		return false, false, nil
	}
	switch string(v) {
	case "true":
		return true, true, nil
	case "false":
		return false, true, nil
	}
	return false, false, wrongType(name, "true or false")
}

// Uint returns an integer of at least 0 written in digits alone: 1.0 and 1e3
// are refused. A value above 2^64-1 is returned as math.MaxUint64.
func (p Params) Uint(name string) (uint64, bool, error) {
	v, ok := p.get(name)
	if !ok {
		return 0, false, nil
	}
	var n uint64
	for _, c := range v {
		d := uint64(c - '0')
		if d > 9 {
			return 0, false, wrongType(name, "an integer of at least 0")
		}
		if n > (math.MaxUint64-d)/10 {
			n = math.MaxUint64
			continue
		}
		n = n*10 + d
	}
	return n, true, nil
}

// Strings returns an array of strings.
func (p Params) Strings(name string) ([]string, bool, error) {
	v, ok := p.get(name)
	if !ok {
		return nil, false, nil
	}
	if v[0] != '[' {
		return nil, false, wrongType(name, "an array of strings")
	}
	list := []string{}
	for i := skipSpace(v, 1); i < len(v) && v[i] != ']'; {
		if v[i] != '"' {
			return nil, false, wrongType(name, "an array of strings")
		}
		end := stringEnd(v, i)
		list = append(list, string(unquote(v[i:end])))
		i = skipSpace(v, skipSpace(v, end)+1)
	}
	return list, true, nil
}

// StringMap returns an object whose values are strings.
func (p Params) StringMap(name string) (map[string]string, bool, error) {
	o, ok, err := p.Object(name)
	if err != nil || !ok {
		return nil, false, err
	}
	m := make(map[string]string, len(o.members))
	for _, e := range o.members {
		if e.value[0] != '"' {
			return nil, false, wrongType(name, "an object of strings")
		}
		m[strings.ToValidUTF8(string(e.name), "\uFFFD")] = string(unquote(e.value))
	}
	return m, true, nil
}

// Object returns the members of an object.
func (p Params) Object(name string) (Params, bool, error) {
	v, ok := p.get(name)
	if !ok {
		return Params{}, false, nil
	}
	o, ok := parseObject(v)
	if !ok {
		return Params{}, false, wrongType(name, "an object")
	}
	return o, true, nil
}
