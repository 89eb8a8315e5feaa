package bench

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"
)

func number(s string) int {
	n, err := strconv.Atoi(s)
	if err != nil {
		panic(err) // the benchmark wrote it
	}
	return n
}

// stampsChild waits for a line, then prints N lines, a millisecond apart, each
// with the time just before it is written; then it lives until stdin ends.
func stampsChild(args []string) int {
	in := bufio.NewReader(os.Stdin)
	if _, err := in.ReadString('\n'); err != nil {
		return 1
	}
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for range number(args[0]) {
		<-tick.C
		fmt.Fprintf(os.Stdout, `{"t":%d}`+"\n", time.Now().UnixNano())
	}
	return drain(in)
}

// linesChild waits for a line, then prints N lines of SIZE bytes as fast as they
// are taken, N times as often as it gets a line.
func linesChild(args []string) int {
	in := bufio.NewReader(os.Stdin)
	out := bufio.NewWriterSize(os.Stdout, 64<<10)
	pad := strings.Repeat("x", number(args[1])-32)
	for {
		if _, err := in.ReadString('\n'); err != nil {
			return 0
		}
		for n := range number(args[0]) {
			fmt.Fprintf(out, `{"type":"t","n":%10d,"p":"%s"}`+"\n", n, pad)
		}
		if out.Flush() != nil {
			return 1
		}
	}
}

// singleChild prints N lines, far enough apart that each is a record of its own.
func singleChild(args []string) int {
	for n := range number(args[0]) {
		fmt.Fprintf(os.Stdout, `{"n":%d}`+"\n", n)
		for began := time.Now(); time.Since(began) < 70*time.Microsecond; {
			continue // a timer is not that fine
		}
	}
	return drain(bufio.NewReader(os.Stdin))
}

func drain(in io.Reader) int {
	if _, err := io.Copy(io.Discard, in); err != nil {
		return 1
	}
	return 0
}
