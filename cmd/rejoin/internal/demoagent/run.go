package demoagent

import (
	"bufio"
	"errors"
	"flag"
	"fmt"
	"io"
	"strings"
	"time"

	"rejoin/protocol"
)

const (
	// PaceDefault is the pause between the words of a reply.
	PaceDefault = 20 * time.Millisecond
	// inputBytesMax bounds a line of stdin; a longer one is refused.
	inputBytesMax = 16 << 20
	// inputBufferBytes is what the reader takes from stdin at a time.
	inputBufferBytes = 4 << 10
	outBufferBytes   = 64 << 10
)

// Run is the program: in, out and errOut are its stdin, stdout and stderr, args
// what follows its name. It returns the exit code: 0 at the end of in or for
// the script exit, 1 when out takes no more, 2 for bad arguments, 3 for the
// script crash. The one goroutine that it leaves behind when it returns before
// in ends is blocked in in.Read.
func Run(in io.Reader, out, errOut io.Writer, args []string) int {
	flags := flag.NewFlagSet("demo-agent", flag.ContinueOnError)
	flags.SetOutput(errOut)
	pace := flags.Duration("pace", PaceDefault, "pause between the words of a reply")
	flags.Usage = func() {
		// The usage is all that can be said; stderr that fails has no other place to say so.
		_, _ = fmt.Fprint(errOut, usage())
		flags.PrintDefaults()
	}
	if err := flags.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return 0
		}
		return 2
	}
	if flags.NArg() > 0 || *pace < 0 {
		// The usage is all that can be said; stderr that fails has no other place to say so.
		_, _ = fmt.Fprintln(errOut, "demo-agent takes no arguments but --pace DURATION")
		return 2
	}
	done := make(chan struct{})
	defer close(done)
	lines := make(chan input)
	go read(in, lines, done)
	a := &agent{out: bufio.NewWriterSize(out, outBufferBytes), errOut: errOut, lines: lines, pace: *pace}
	return a.run()
}

// usage says what the program takes.
func usage() string {
	var b strings.Builder
	b.WriteString("Usage of demo-agent: one JSON command per line of stdin, such as\n  " + example + "\nA message is a script of these words; any other is repeated:\n")
	for _, w := range words {
		b.WriteString("  " + w.help + "\n")
	}
	b.WriteString("Flags:\n")
	return b.String()
}

// An input is one line of stdin.
type input struct {
	line    []byte
	tooLong bool
}

// read hands the lines of in over, one at a time, and closes lines at the end
// of in. It gives up when done is closed.
func read(in io.Reader, lines chan<- input, done <-chan struct{}) {
	defer close(lines)
	r := protocol.NewLineReader(in, inputBytesMax, inputBufferBytes)
	for first := true; ; first = false {
		line, err := r.ReadLine()
		next := input{line: append([]byte(nil), protocol.TrimLine(line, first)...)}
		if errors.Is(err, protocol.ErrLineTooLong) {
			next.tooLong = true
			_, err = r.SkipLine()
		}
		if err != nil {
			return
		}
		select {
		case lines <- next:
		case <-done:
			return
		}
	}
}
