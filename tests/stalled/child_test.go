package stalled

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"time"
)

// order: print so many lines of lineBytes at a steady pace, each with the time at
// which it is printed.
type order struct {
	Lines int `json:"lines"`
}

const (
	lineBytes = 1000
	perTick   = 20
	tick      = 2 * time.Millisecond // 10 MB/s
)

func pour([]string) int {
	in := bufio.NewScanner(os.Stdin)
	out := bufio.NewWriterSize(os.Stdout, 64<<10)
	pad := strings.Repeat("p", lineBytes)
	n := 0
	for in.Scan() {
		var o order
		if err := json.Unmarshal(in.Bytes(), &o); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 2
		}
		if err := flood(out, &n, o.Lines, pad); err != nil {
			return 1
		}
	}
	return 0
}

func flood(out *bufio.Writer, n *int, lines int, pad string) error {
	pace := time.NewTicker(tick)
	defer pace.Stop()
	for left := lines; left > 0; {
		<-pace.C
		for range min(left, perTick) {
			*n++
			left--
			head := fmt.Sprintf(`{"n":%d,"at":%d,"pad":"`, *n, time.Now().UnixNano())
			if _, err := fmt.Fprintf(out, "%s%s\"}\n", head, pad[:lineBytes-len(head)-3]); err != nil {
				return err
			}
		}
		if err := out.Flush(); err != nil {
			return err
		}
	}
	return nil
}
