package worker

import (
	"bytes"
	"testing"
)

func TestSeal(t *testing.T) {
	s, err := NewSeal([]byte("0123456789abcdef0123456789abcdef"))
	if err != nil {
		t.Fatal(err)
	}
	other, err := NewSeal([]byte("another key 0123456789abcdef0123"))
	if err != nil {
		t.Fatal(err)
	}
	file := s.seal([]byte("first "))
	whole := len(file)
	file = append(file, s.seal([]byte("second"))...)
	if bytes.Contains(file, []byte("second")) {
		t.Error("it is in clear")
	}
	if got := string(s.open(file)); got != "first second" {
		t.Errorf("got %q", got)
	}
	for cut := whole; cut < len(file); cut++ { // a crash in the second write
		if got := string(s.open(file[:cut])); got != "first " {
			t.Fatalf("cut at %d: %q", cut, got)
		}
	}
	if got := other.open(file); len(got) > 0 {
		t.Errorf("another key opens %q", got)
	}
	file[len(file)-1] ^= 1
	if got := string(s.open(file)); got != "first " {
		t.Errorf("behind a whole frame a changed one opens as %q", got)
	}
	file[whole-1] ^= 1
	if got := s.open(file); len(got) > 0 {
		t.Errorf("a changed frame opens as %q", got)
	}
	var none *Seal
	if got := string(none.open(none.seal([]byte("text")))); got != "text" {
		t.Errorf("in clear: %q", got)
	}
}

func FuzzSealOpen(f *testing.F) {
	s, err := NewSeal([]byte("0123456789abcdef0123456789abcdef"))
	if err != nil {
		f.Fatal(err)
	}
	f.Add([]byte{0, 0, 0, 20, 1, 2, 3})
	f.Add(s.seal([]byte("text")))
	f.Fuzz(func(t *testing.T, b []byte) {
		if got := s.open(b); len(got) > len(b) {
			t.Errorf("%d bytes from %d", len(got), len(b))
		}
	})
}
