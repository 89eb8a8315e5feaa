package journal

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestOpenFormat(t *testing.T) {
	for _, tc := range []struct {
		name    string
		content string // "" : no file
		streams bool
		want    string // in the *FormatError; "": none
		shards  int
	}{
		{name: "first start", shards: 4},
		{name: "stored number counts", content: `{"layout":1,"shards":8,"ready":true,"expect":["J0"]}`, shards: 8},
		{name: "newer", content: `{"layout":2,"shards":8}`, want: "newer version"},
		{name: "older than any", content: `{"layout":0,"shards":8}`, want: "unknown layout"},
		{name: "shards", content: `{"layout":1,"shards":0}`, want: "shards"},
		{name: "rubbish", content: `{"layout":`, want: "not readable"},
		{name: "file gone", streams: true, want: "missing"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			dir := t.TempDir()
			if tc.content != "" {
				if err := os.WriteFile(filepath.Join(dir, "format"), []byte(tc.content), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			if tc.streams {
				if err := os.MkdirAll(filepath.Join(streamsDir(dir), "J0"), 0o700); err != nil {
					t.Fatal(err)
				}
			}
			f, err := openFormat(dir, 4)
			var fe *FormatError
			switch {
			case tc.want == "" && (err != nil || f.Shards != tc.shards):
				t.Errorf("got %+v, %v", f, err)
			case tc.want != "" && (!errors.As(err, &fe) || !strings.Contains(err.Error(), tc.want)):
				t.Errorf("got %v, want *FormatError with %q", err, tc.want)
			}
		})
	}
}

func TestWriteFileReplaces(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "x")
	for _, s := range []string{"one", "two"} {
		if err := writeFile(path, []byte(s)); err != nil {
			t.Fatal(err)
		}
		if got, err := os.ReadFile(path); err != nil || string(got) != s {
			t.Errorf("got %q, %v", got, err)
		}
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 1 {
		t.Errorf("%d files left, %v", len(entries), err)
	}
	if err := writeFile(filepath.Join(dir, "no", "x"), nil); err == nil {
		t.Error("no error for a directory that is not there")
	}
}
