package cgroup

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
)

// files is the part of the kernel's file systems that is used here; tests have a
// kernel of their own.
type files interface {
	Read(path string) (string, error)
	Write(path, text string) error // to a file that is there
	Mkdir(path string) error
	Remove(path string) error              // of a directory without directories in it
	Dirs(path string) ([]string, error)    // names of the directories in it
	OpenDir(path string) (*os.File, error) // nil with a nil error: there is no descriptor to be had
}

type kernel struct{}

func (kernel) Read(path string) (string, error) {
	b, err := os.ReadFile(path)
	return string(b), err
}

func (kernel) Write(path, text string) error {
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(text) // one write: the kernel takes it whole
	return errors.Join(err, f.Close())
}

func (kernel) Mkdir(path string) error { return os.Mkdir(path, 0o755) }

func (kernel) Remove(path string) error { return os.Remove(path) }

func (kernel) Dirs(path string) ([]string, error) {
	entries, err := os.ReadDir(path)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, e := range entries {
		if e.IsDir() {
			names = append(names, e.Name())
		}
	}
	return names, nil
}

func (kernel) OpenDir(path string) (*os.File, error) { return os.Open(path) }

// below calls f for dir and every directory below it, the deepest first. A
// directory that goes away meanwhile is no error.
func below(fsys files, dir string, f func(dir string) error) error {
	names, err := fsys.Dirs(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	var errs []error
	for _, name := range names {
		errs = append(errs, below(fsys, filepath.Join(dir, name), f))
	}
	if err := f(dir); !errors.Is(err, fs.ErrNotExist) {
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}
