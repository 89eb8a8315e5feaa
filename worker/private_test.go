package worker

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"rejoin/protocol"
)

func privateRecord() *protocol.SessionRecord {
	return &protocol.SessionRecord{Workspace: "default", ID: "s", Home: protocol.DirPrivate, Tmp: protocol.DirPrivate}
}

func TestPrivateDirectories(t *testing.T) {
	data := t.TempDir()
	rec := privateRecord()
	at := filepath.Join(data, "sessions", "default", "s")
	want := []string{"HOME=" + at + "/home", "TMPDIR=" + at + "/tmp", "TMP=" + at + "/tmp", "TEMP=" + at + "/tmp"}
	for run := range 2 { // a resume keeps what is there
		env, err := makePrivate(data, rec)
		if err != nil || !slices.Equal(env, want) {
			t.Fatalf("run %d: %q, %v", run, env, err)
		}
		for _, dir := range []string{at, at + "/home", at + "/tmp", filepath.Dir(at)} {
			if st, err := os.Stat(dir); err != nil || st.Mode().Perm() != 0o700 {
				t.Fatalf("%s: %v, %v", dir, st, err)
			}
		}
		if run == 0 {
			mustWrite(t, at+"/home/kept")
			if err := os.Chmod(at+"/tmp", 0o755); err != nil {
				t.Fatal(err)
			}
		}
	}
	if _, err := os.Stat(at + "/home/kept"); err != nil {
		t.Error(err)
	}
	rec.Home = ""
	if env, err := makePrivate(data, rec); err != nil || len(env) != 3 {
		t.Errorf("tmp alone: %q, %v", env, err)
	}
	if env, err := makePrivate("/nonexistent", &protocol.SessionRecord{}); err != nil || env != nil {
		t.Errorf("nothing private: %q, %v", env, err)
	}
}

func mustWrite(t *testing.T, path string) {
	t.Helper()
	if err := os.WriteFile(path, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
}

// What a child puts in the way of its next run's directories leads nowhere else.
func TestPrivateDirectoriesFollowNoLink(t *testing.T) {
	for _, link := range []string{"sessions", "sessions/default", "sessions/default/s", "sessions/default/s/home"} {
		t.Run(link, func(t *testing.T) {
			data, victim := t.TempDir(), t.TempDir()
			if err := os.Chmod(victim, 0o755); err != nil {
				t.Fatal(err)
			}
			mustWrite(t, filepath.Join(victim, "file"))
			if err := os.MkdirAll(filepath.Join(data, filepath.Dir(link)), 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.Symlink(victim, filepath.Join(data, link)); err != nil {
				t.Fatal(err)
			}
			if env, err := makePrivate(data, privateRecord()); err == nil {
				t.Errorf("made %q", env)
			}
			_ = RemoveFiles(data, privateRecord().Key()) // whether it fails or removes the link: only the victim counts
			st, err := os.Stat(victim)
			if err != nil || st.Mode().Perm() != 0o755 {
				t.Errorf("victim: %v, %v", st, err)
			}
			if names, err := os.ReadDir(victim); err != nil || len(names) != 1 {
				t.Errorf("victim holds %v, %v", names, err)
			}
		})
	}
}

func TestKeysThatLeaveTheirDirectory(t *testing.T) {
	data := t.TempDir()
	mustWrite(t, filepath.Join(data, "format"))
	for _, k := range []protocol.Key{{Workspace: "..", Session: "s"}, {Workspace: "w", Session: "../.."}, {Workspace: "", Session: ""}, {Workspace: "a/b", Session: "s"}} {
		rec := privateRecord()
		rec.Workspace, rec.ID = k.Workspace, k.Session
		if env, err := makePrivate(data, rec); err == nil {
			t.Errorf("%v: made %q", k, env)
		}
		if err := RemoveFiles(data, k); err == nil {
			t.Errorf("%v: removed", k)
		}
	}
	if names, err := os.ReadDir(data); err != nil || len(names) != 1 {
		t.Errorf("left %v, %v", names, err)
	}
}

func TestRemoveFiles(t *testing.T) {
	data := t.TempDir()
	if _, err := makePrivate(data, privateRecord()); err != nil {
		t.Fatal(err)
	}
	k := privateRecord().Key()
	tail := newStderrTail(data, k, 1, nil)
	tail.write([]byte("x"))
	tail.close()
	shut := filepath.Join(data, "sessions/default/s/home/cache/module")
	if err := os.MkdirAll(shut, 0o700); err != nil {
		t.Fatal(err)
	}
	mustWrite(t, filepath.Join(shut, "file"))
	for _, dir := range []string{shut, filepath.Dir(shut)} {
		if err := os.Chmod(dir, 0o100); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 {
		if err := RemoveFiles(data, k); err != nil {
			t.Fatal(err)
		}
	}
	for _, dir := range []string{"sessions/default/s", "stderr/default/s"} {
		if _, err := os.Stat(filepath.Join(data, dir)); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: %v", dir, err)
		}
	}
}

func TestWorkingDirectory(t *testing.T) {
	dir := t.TempDir()
	mustWrite(t, filepath.Join(dir, "file"))
	for cwd, says := range map[string]string{
		"": "", dir: "", dir + "/none": "no such file or directory", dir + "/file": "is not a directory", dir + "/file/x": "not a directory",
	} {
		err := checkDirectory("prog", cwd)
		if (err == nil) != (says == "") || err != nil && !strings.Contains(err.Error(), "failed to start prog: working directory "+cwd) {
			t.Errorf("%s: %v", cwd, err)
		}
		if e, ok := protocol.AsError(err); err != nil && (!ok || e.Reason != protocol.ReasonInvalidParams || !strings.Contains(e.Message, says)) {
			t.Errorf("%s: %v", cwd, err)
		}
	}
}

// Nor to what another session has.
func TestPrivateDirectoryOfAnotherSession(t *testing.T) {
	data := t.TempDir()
	other := privateRecord()
	other.ID = "other"
	if _, err := makePrivate(data, other); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(data, "sessions/default/s"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("../other/home", filepath.Join(data, "sessions/default/s/home")); err != nil {
		t.Fatal(err)
	}
	if env, err := makePrivate(data, privateRecord()); err == nil {
		t.Errorf("made %q", env)
	}
	if err := RemoveFiles(data, privateRecord().Key()); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(data, "sessions/default/other/home")); err != nil {
		t.Error(err)
	}
}
