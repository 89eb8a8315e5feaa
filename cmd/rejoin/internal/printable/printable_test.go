package printable

import "testing"

func TestPrintable(t *testing.T) {
	for in, want := range map[string]string{
		"a\tb\nc": "a\tb\nc", "\x1b[31mred": "�[31mred", "\u009b": "�", "a\r\n": "a�\n", "\u202eevil\u2066": "�evil�", "ø…": "ø…",
	} {
		if got := Text(in); got != want {
			t.Errorf("Text(%q) = %q, want %q", in, got, want)
		}
	}
	if got := Line("a\tb\nc"); got != "a b c" {
		t.Errorf("%q", got)
	}
}
