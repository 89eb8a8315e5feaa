package protocol

import (
	"bytes"
	"errors"
	"math"
	"strconv"
)

// A stored line is the tail of the notification that clients receive:
//
//	"seq":N,"ts":N,"run":N,"source":"child",["commandId":"…",]"event":BODY}}
//
// so that prefix, line and LF are a whole notification:
//
//	{"jsonrpc":"2.0","method":"event","params":{"subscriptionId":7,"sessionId":"S",["epoch":"…",]
//
// and fan-out concatenates bytes without encoding JSON again.
const (
	lineSeq       = `"seq":`
	lineTS        = `,"ts":`
	lineRun       = `,"run":`
	lineSource    = `,"source":"`
	lineChild     = `child"`
	lineBroker    = `broker"`
	lineCommandID = `,"commandId":`
	lineEvent     = `,"event":`
	lineEnd       = `}}`
)

// errEventLine is returned by ParseEventLine for bytes that AppendEventLine did
// not write. Trying again does not help.
var errEventLine = errors.New("protocol: malformed event line")

// AppendEventLine appends the stored line of e, without LF. Body must be one
// JSON value without line feeds.
func AppendEventLine(dst []byte, e *Event) []byte {
	dst = append(dst, lineSeq...)
	dst = strconv.AppendUint(dst, uint64(e.Seq), 10)
	dst = append(dst, lineTS...)
	dst = strconv.AppendInt(dst, e.TS, 10)
	dst = append(dst, lineRun...)
	dst = strconv.AppendUint(dst, uint64(e.Run), 10)
	dst = append(dst, lineSource...)
	if e.Source == SourceChild {
		dst = append(dst, lineChild...)
	} else {
		dst = append(dst, lineBroker...)
	}
	if e.CommandID != "" {
		dst = append(dst, lineCommandID...)
		dst = AppendString(dst, e.CommandID)
	}
	dst = append(dst, lineEvent...)
	dst = append(dst, e.Body...)
	return append(dst, lineEnd...)
}

// ParseEventLine is the inverse of AppendEventLine. Body aliases line; that it
// is JSON is not checked.
func ParseEventLine(line []byte) (Event, error) {
	var e Event
	p := lineParser{rest: line}
	p.literal(lineSeq)
	e.Seq = Seq(p.uint())
	p.literal(lineTS)
	e.TS = p.int()
	p.literal(lineRun)
	e.Run = Run(p.uint())
	p.literal(lineSource)
	if p.optional(lineBroker) {
		e.Source = SourceBroker
	} else {
		p.literal(lineChild)
	}
	if p.optional(lineCommandID) {
		e.CommandID = p.string()
	}
	p.literal(lineEvent)
	body, ok := bytes.CutSuffix(p.rest, []byte(lineEnd))
	if p.bad || !ok || len(body) == 0 {
		return Event{}, errEventLine
	}
	e.Body = body
	return e, nil
}

// A lineParser takes a stored line apart; once bad, it stays so.
type lineParser struct {
	rest []byte
	bad  bool
}

func (p *lineParser) optional(s string) bool {
	if len(p.rest) < len(s) || string(p.rest[:len(s)]) != s {
		return false
	}
	p.rest = p.rest[len(s):]
	return true
}

func (p *lineParser) literal(s string) {
	if !p.optional(s) {
		p.bad = true
	}
}

func (p *lineParser) uint() uint64 {
	var n uint64
	i := 0
	for i < len(p.rest) && p.rest[i]-'0' < 10 {
		d := uint64(p.rest[i] - '0')
		if n > (math.MaxUint64-d)/10 {
			p.bad = true
			return 0
		}
		n = n*10 + d
		i++
	}
	if i == 0 {
		p.bad = true
	}
	p.rest = p.rest[i:]
	return n
}

func (p *lineParser) int() int64 {
	negative := p.optional(`-`)
	n := p.uint()
	switch {
	case negative && n <= 1<<63:
		return int64(-n) // two's complement: right for the least int64, too
	case !negative && n <= math.MaxInt64:
		return int64(n)
	}
	p.bad = true
	return 0
}

func (p *lineParser) string() string {
	if len(p.rest) == 0 || p.rest[0] != '"' {
		p.bad = true
		return ""
	}
	end, f := scanString(p.rest, 1)
	if f != faultNone {
		p.bad = true
		return ""
	}
	s := string(unquote(p.rest[:end]))
	p.rest = p.rest[end:]
	return s
}

// LineSource returns the source of a stored line without parsing it.
func LineSource(line []byte) Source {
	i := 0
	for range 3 { // the commas before source: only numbers stand there
		n := bytes.IndexByte(line[i:], ',')
		if n < 0 {
			return SourceChild
		}
		i += n + 1
	}
	if i += len(lineSource) - 1; i < len(line) && line[i] == lineBroker[0] {
		return SourceBroker
	}
	return SourceChild
}

// AppendEventPrefix appends what precedes a stored line in a notification. An
// empty epoch is left out.
func AppendEventPrefix(dst []byte, subscription uint64, session string, epoch Epoch) []byte {
	dst = append(dst, `{"jsonrpc":"2.0","method":"event","params":{"subscriptionId":`...)
	dst = strconv.AppendUint(dst, subscription, 10)
	dst = append(dst, `,"sessionId":`...)
	dst = AppendString(dst, session)
	if epoch != "" {
		dst = append(dst, `,"epoch":`...)
		dst = AppendString(dst, string(epoch))
	}
	return append(dst, ',')
}

// AppendEventObject appends a stored line as one member of read_events:
// {"sessionId":"S",LINE without its last brace.
func AppendEventObject(dst []byte, session string, line []byte) []byte {
	dst = append(dst, `{"sessionId":`...)
	dst = AppendString(dst, session)
	dst = append(dst, ',')
	return append(dst, line[:max(0, len(line)-1)]...)
}
