package demoagent

import (
	"fmt"
	"strconv"
	"strings"
)

// pollEvery is after how many lines without a pause stdin is looked at.
const pollEvery = 256

// flood prints n numbered lines as fast as stdout takes them, padded to size
// bytes without LF where size is larger than they are.
func (r *reply) flood(n, size int64) {
	var line []byte
	for i := int64(1); i <= n && !r.stopped(); i++ {
		line = append(line[:0], `{"type":"flood","n":`...)
		line = strconv.AppendInt(line, i, 10)
		line = append(line, `,"of":`...)
		line = strconv.AppendInt(line, n, 10)
		const frame = len(`,"pad":""}`)
		if room := int(size) - len(line) - frame; room > 0 {
			line = append(line, `,"pad":"`...)
			for range room {
				line = append(line, 'x')
			}
			line = append(line, '"')
		}
		line = append(line, '}', '\n')
		if _, err := r.out.Write(line); err != nil {
			r.broken()
			return
		}
		if i%pollEvery == 0 {
			r.poll()
		}
	}
	r.flush()
}

// big prints one line of n bytes without LF, or the shortest of its kind.
func (r *reply) big(n int64) {
	const head, tail = `{"type":"big","text":"`, `"}`
	pad := strings.Repeat("x", 4096)
	r.write(head)
	for room := n - int64(len(head)+len(tail)); room > 0 && !r.gone; room -= int64(len(pad)) {
		r.write(pad[:min(room, int64(len(pad)))])
	}
	r.write(tail + "\n")
	r.flush()
}

// rubbish prints what no client should ever see as it is.
func (r *reply) rubbish() {
	r.write("this line is not JSON\n")
	r.write("{\"type\":\"cut off\n")
	r.write("\n")
	r.write("{\"type\":\"bad\",\"text\":\"\xff\xfe\"}\n")
	r.flush()
}

func (r *reply) write(s string) {
	if r.gone {
		return
	}
	if _, err := r.out.WriteString(s); err != nil {
		r.broken()
	}
}

// stderr writes n lines to stderr.
func (r *reply) stderr(n int64) {
	for i := int64(1); i <= n && !r.stopped(); i++ {
		if _, err := fmt.Fprintf(r.errOut, "demo-agent: line %d of %d on stderr\n", i, n); err != nil {
			return // nobody reads stderr: the reply goes on without it
		}
		if i%pollEvery == 0 {
			r.poll()
		}
	}
}
