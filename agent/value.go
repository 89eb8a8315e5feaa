package agent

import (
	"math"
	"strconv"

	"rejoin/protocol"
)

// The functions of this file read what a child printed. A member that is absent
// or of another type than asked for is the type's zero value: a fold is total.

// Object returns the members of a JSON object; of anything else none.
func Object(raw []byte) protocol.Params {
	for len(raw) > 0 && (raw[0] == ' ' || raw[0] == '\t' || raw[0] == '\r' || raw[0] == '\n') {
		raw = raw[1:]
	}
	if len(raw) == 0 || raw[0] != '{' {
		return protocol.Params{}
	}
	p, err := protocol.ParseParams(raw)
	if err != nil {
		return protocol.Params{}
	}
	return p
}

// Member returns the members of an object's object.
func Member(p protocol.Params, name string) protocol.Params {
	raw, _ := p.Raw(name)
	return Object(raw)
}

// String returns a string of an object.
func String(p protocol.Params, name string) string {
	raw, _ := p.Raw(name)
	text, _ := protocol.DecodeString(raw)
	return text
}

// True reports whether a member is true.
func True(p protocol.Params, name string) bool {
	raw, _ := p.Raw(name)
	return string(raw) == "true"
}

// Uint returns an integer of at least 0.
func Uint(p protocol.Params, name string) uint64 {
	raw, _ := p.Raw(name)
	n, err := strconv.ParseUint(string(raw), 10, 64)
	if err != nil {
		return 0
	}
	return n
}

// Float returns a finite number above 0.
func Float(p protocol.Params, name string) float64 {
	raw, _ := p.Raw(name)
	x, err := strconv.ParseFloat(string(raw), 64)
	if err != nil || !(x > 0) || math.IsInf(x, 0) {
		return 0
	}
	return x
}

// Strings returns the strings of an array.
func Strings(p protocol.Params, name string) []string {
	raw, _ := p.Raw(name)
	var list []string
	for e := range protocol.Elements(raw) {
		if text, ok := protocol.DecodeString(e); ok {
			list = append(list, text)
		}
	}
	return list
}

// Pick finds members of the object that b is, each at the place of its name: for
// hot paths, since it allocates nothing. Of a repeated name the last one counts.
func Pick(b []byte, names []string, values []protocol.RawJSON) {
	for m := range protocol.Members(b) {
		for i, name := range names {
			if string(m.Name) == name {
				values[i] = m.Value
			}
		}
	}
}
