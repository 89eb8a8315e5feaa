package pi_test

import (
	"os"
	"path/filepath"
	"syscall"
)

// pipe makes a named pipe in pi's working directory, on which a tool can wait.
func (w *world) pipe(name string) string {
	w.t.Helper()
	if err := syscall.Mkfifo(filepath.Join(w.dir, name), 0o600); err != nil {
		w.t.Fatal(err)
	}
	return name
}

// feed writes to a named pipe that a tool reads.
func (w *world) feed(name, text string) {
	w.t.Helper()
	f, err := os.OpenFile(filepath.Join(w.dir, name), os.O_RDWR, 0)
	if err != nil {
		w.t.Fatal(err)
	}
	_, err = f.WriteString(text)
	w.t.Cleanup(func() { _ = f.Close() }) // closed earlier, what was written might be lost
	if err != nil {
		w.t.Fatal(err)
	}
}
