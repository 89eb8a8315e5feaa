package journal

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"
)

func TestUncleanBoot(t *testing.T) {
	for _, tc := range []struct {
		name string
		prev *bootMark
		want bool
	}{
		{"first start", nil, false},
		{"clean, other boot", &bootMark{BootID: "a", Clean: true, Durability: "20ms"}, false},
		{"killed, same boot", &bootMark{BootID: "b", Durability: "20ms"}, false},
		{"killed, other boot, always", &bootMark{BootID: "a", Durability: "always"}, false},
		{"killed, other boot, interval", &bootMark{BootID: "a", Durability: "20ms"}, true},
		{"not settled, same boot", &bootMark{BootID: "b", Durability: "always", Unclean: true}, true},
		{"not settled, stopped in order", &bootMark{BootID: "b", Clean: true, Durability: "20ms", Unclean: true}, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			dir := t.TempDir()
			if tc.prev != nil {
				if err := tc.prev.write(dir); err != nil {
					t.Fatal(err)
				}
			}
			m, err := openBoot(dir, "b", Durability{}) // that this start is always does not matter
			if err != nil {
				t.Fatal(err)
			}
			if m.Unclean != tc.want {
				t.Errorf("unclean %v, want %v", m.Unclean, tc.want)
			}
			onDisk, found, err := readBoot(dir)
			if err != nil || !found || onDisk != *m || onDisk.Clean || onDisk.BootID != "b" || onDisk.Durability != "always" {
				t.Errorf("on disk %+v, %v, %v", onDisk, found, err)
			}
		})
	}
}

func TestInstanceIsKept(t *testing.T) {
	dir := t.TempDir()
	a, err := openInstance(dir, time.Unix(1e9, 0))
	if err != nil {
		t.Fatal(err)
	}
	if b, err := openInstance(dir, time.Unix(2e9, 0)); err != nil || a != b {
		t.Errorf("got %s, %v; want %s", b, err, a)
	}
	if err := os.WriteFile(filepath.Join(dir, "instance"), []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	var format *FormatError
	if _, err := openInstance(dir, time.Unix(1e9, 0)); !errors.As(err, &format) {
		t.Errorf("got %v, want *FormatError", err)
	}
}

func TestParseDurability(t *testing.T) {
	for s, want := range map[string]time.Duration{"always": 0, "1ms": time.Millisecond, "20ms": 20 * time.Millisecond, "10m": 10 * time.Minute, "60s": time.Minute} {
		d, err := ParseDurability(s)
		if err != nil || d.Interval != want {
			t.Errorf("%q: %v, %v", s, d, err)
		}
		if again, err := ParseDurability(d.String()); err != nil || again != d {
			t.Errorf("%q: String gives %q: %v", s, d, err)
		}
	}
	for _, s := range []string{"", "never", "0", "0s", "-1s", "999us", "10m1ms", "20", "Always"} {
		if d, err := ParseDurability(s); err == nil {
			t.Errorf("%q: taken as %s", s, d)
		}
	}
}
