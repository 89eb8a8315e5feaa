package model

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// Book is what the child of one run wrote of itself: every line before it was
// printed, every order before it was obeyed.
type Book struct {
	Run     uint64
	Printed [][]byte
	Read    [][]byte
	Rivals  int  // further children of the same run
	Whole   bool // the run ended in order: everything printed is in the log
}

// Files of the child's book.
func outPath(dir, session string, run uint64) string {
	return filepath.Join(dir, fmt.Sprintf("%s.%d.out", session, run))
}

func inPath(dir, session string, run uint64) string {
	return filepath.Join(dir, fmt.Sprintf("%s.%d.in", session, run))
}

func rivalPath(dir, session string, run uint64) string {
	return filepath.Join(dir, fmt.Sprintf("%s.%d.rivals", session, run))
}

// ReadBooks reads the books of a session's runs up to a run; runs without a child
// have none. whole tells of which runs everything must be in the log.
func ReadBooks(dir, session string, last uint64, whole func(run uint64) bool) ([]*Book, error) {
	var all []*Book
	for run := uint64(1); run <= last; run++ {
		out, err := os.ReadFile(outPath(dir, session, run))
		if errors.Is(err, os.ErrNotExist) {
			continue // a run of a recovering broker, or a child that was killed before its first line
		}
		if err != nil {
			return nil, err
		}
		b := &Book{Run: run, Whole: whole(run), Printed: fullLines(out)}
		in, err := os.ReadFile(inPath(dir, session, run))
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return nil, err
		}
		b.Read = fullLines(in)
		rivals, err := os.ReadFile(rivalPath(dir, session, run))
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return nil, err
		}
		b.Rivals = len(fullLines(rivals))
		all = append(all, b)
	}
	return all, nil
}

// fullLines returns the lines that have their LF.
func fullLines(book []byte) [][]byte {
	all := bytes.Split(book, []byte("\n"))
	return all[:len(all)-1]
}

// lineKey is what a line says of itself.
type lineKey struct {
	run uint64
	n   int
}

func lineNumber(line []byte) (k lineKey, ok bool) {
	var l struct {
		Run uint64 `json:"run"`
		N   int    `json:"n"`
	}
	if json.Unmarshal(line, &l) != nil || l.Run == 0 || l.N == 0 {
		return k, false
	}
	return lineKey{l.Run, l.N}, true
}
