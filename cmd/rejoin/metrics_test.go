package main

import (
	"maps"
	"os"
	"regexp"
	"slices"
	"testing"
)

// docs/operations.md has a row for each metric, and none that is not there.
func TestMetricsAreDocumented(t *testing.T) {
	doc, err := os.ReadFile("../../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	var documented []string
	for _, m := range regexp.MustCompile("(?m)^\\| `(rejoin_[a-z_]+)` \\| (?:counter|gauge|histogram) ").FindAllSubmatch(doc, -1) {
		documented = append(documented, string(m[1]))
	}
	slices.Sort(documented)
	if want := slices.Sorted(maps.Keys(catalogue)); !slices.Equal(documented, want) {
		t.Errorf("documented:\n%q\nthere are:\n%q", documented, want)
	}
}

func TestCheckAdmin(t *testing.T) {
	for address, want := range map[string]struct{ alone, insecure bool }{
		"127.0.0.1:0": {true, true}, "[::1]:9": {true, true}, "localhost:1": {true, true}, "[::ffff:127.0.0.1]:1": {true, true},
		":1": {false, true}, "0.0.0.0:1": {false, true}, "[::]:1": {false, true}, "10.1.1.1:1": {false, true}, "example.org:1": {false, true},
		"127.0.0.1": {}, "": {}, "127.0.0.1:70000": {}, "127.0.0.1:http": {},
	} {
		if err := checkAdmin(address, false); (err == nil) != want.alone {
			t.Errorf("%s: %v", address, err)
		}
		if err := checkAdmin(address, true); (err == nil) != want.insecure {
			t.Errorf("%s with --insecure: %v", address, err)
		}
	}
}

func TestNamesThisMachine(t *testing.T) {
	for host, want := range map[string]bool{
		"127.0.0.1:1": true, "localhost:1": true, "localhost": true, "[::1]:1": true, "[::1]": true,
		"evil.example:1": false, "10.0.0.1:1": false, "": false, "127.0.0.1.evil.example": false,
	} {
		if namesThisMachine(host) != want {
			t.Errorf("%q: %v", host, !want)
		}
	}
}
