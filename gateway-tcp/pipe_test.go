package gatewaytcp

import (
	"errors"
	"io"
	"strings"
	"testing"

	"rejoin/protocol"
)

func TestStdioFrames(t *testing.T) {
	p := NewStdio(strings.NewReader("\ufeffone\r\n\n\ufefftwo\nthree"), io.Discard, 0)
	for _, want := range []string{"one", "", "\ufefftwo", "three"} {
		if got, err := p.ReadFrame(); err != nil || string(got) != want {
			t.Fatalf("got %q %v, want %q", got, err, want)
		}
	}
	if _, err := p.ReadFrame(); !errors.Is(err, io.EOF) {
		t.Errorf("at the end: %v", err)
	}
	if err := p.Close(0, ""); err != nil {
		t.Fatal(err)
	}

	p = NewStdio(strings.NewReader(strings.Repeat("x", 100)), io.Discard, 10)
	if _, err := p.ReadFrame(); !errors.Is(err, protocol.ErrLineTooLong) {
		t.Errorf("a long line: %v", err)
	}
	if err := p.Close(0, ""); err != nil {
		t.Fatal(err)
	}
}

// Close ends a read that cannot be interrupted.
func TestStdioCloseEndsAPendingRead(t *testing.T) {
	r, w := io.Pipe()
	p := NewStdio(r, io.Discard, 0)
	done := make(chan error)
	go func() {
		_, err := p.ReadFrame()
		done <- err
	}()
	if err := p.Close(0, ""); err != nil {
		t.Fatal(err)
	}
	if err := <-done; !errors.Is(err, io.EOF) {
		t.Errorf("got %v", err)
	}
	if err := w.Close(); err != nil { // lets the reading goroutine go
		t.Fatal(err)
	}
}
