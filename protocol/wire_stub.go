package protocol

import "io"

// ---- frame.go

// LineReader splits a byte stream at LF (and only LF) with a bound on a line.
// It is for one goroutine. The buffer starts at a few hundred bytes, grows to
// the longest line and shrinks again, so that an idle reader costs little.
type LineReader struct{ _ int }

// ErrLineTooLong is returned by ReadLine as soon as a line passes the bound, while the line may still be arriving.
var ErrLineTooLong error

// NewLineReader; max is the longest line in bytes without its LF; initial is the starting buffer (zero: 512).
func NewLineReader(r io.Reader, max, initial int) *LineReader { panic("stub") }

// ReadLine returns the next line without LF (CR is kept), valid until the next call.
// The last line without LF counts at EOF; then io.EOF. After ErrLineTooLong, Preview returns what was kept of the
// head of the line and SkipLine discards the rest, returning the line's whole length without LF.
func (l *LineReader) ReadLine() ([]byte, error) { panic("stub") }
func (l *LineReader) Preview(n int) []byte      { panic("stub") }
func (l *LineReader) SkipLine() (int64, error)  { panic("stub") }

// Ready reports whether a whole line is in the buffer, so that ReadLine will not block.
func (l *LineReader) Ready() bool { panic("stub") }

// ---- json.go

// ValidateJSON checks that b is one JSON value (RFC 8259) in valid UTF-8 with white space around it allowed, any nesting, no recursion. *SyntaxError otherwise.
func ValidateJSON(b []byte) error { panic("stub") }

// SyntaxError says where and why.
type SyntaxError struct {
	Offset int
	Msg    string
}

func (e *SyntaxError) Error() string { panic("stub") }

// Compact appends b, a valid JSON value, without insignificant white space.
func Compact(dst, b []byte) []byte { panic("stub") }

// AppendString appends s as a JSON string (valid UTF-8 stays raw, U+2028 too; invalid bytes become U+FFFD).
func AppendString(dst []byte, s string) []byte { panic("stub") }

// ---- object.go: typed access to a request's params, case-sensitive

// Params are the members of a request's params object.
type Params struct{ _ int }

// ParseParams of a validated value; nil or null is an empty object; anything but an object: invalid_params.
func ParseParams(raw []byte) (Params, error) { panic("stub") }
func (p Params) Has(name string) bool        { panic("stub") }

// Each getter: absent -> zero, false, nil; wrong type -> invalid_params naming the member. null counts as absent except for Raw.
func (p Params) Raw(name string) (RawJSON, bool)          { panic("stub") }
func (p Params) String(name string) (string, bool, error) { panic("stub") }
func (p Params) Bool(name string) (bool, bool, error)     { panic("stub") }

// Uint: a JSON integer >= 0 (1.0 and 1e3 are refused as not integers); above 2^64-1 -> math.MaxUint64.
func (p Params) Uint(name string) (uint64, bool, error)                 { panic("stub") }
func (p Params) Strings(name string) ([]string, bool, error)            { panic("stub") }
func (p Params) StringMap(name string) (map[string]string, bool, error) { panic("stub") }
func (p Params) Object(name string) (Params, bool, error)               { panic("stub") }

// ---- jsonrpc.go

// A Call is one member of a Message: a request, a notification, or what is wrong with it.
type Call struct {
	ID     RawJSON // raw bytes; nil for a notification (then nothing is answered)
	Method string
	Params RawJSON
	Err    *Error // set: not a request; answer Err with ID (null)
}

// A Message is one line of a client.
type Message struct {
	Calls     []Call
	Batch     bool    // answer with an array
	Heartbeat RawJSON // set: a bare {"type":"ping","timestamp":T} line; T's bytes ("null" when absent)
}

// ParseMessage parses one line (CR, surrounding white space tolerated); it never fails: what is wrong is in Calls[].Err.
// A blank line gives no calls.
func ParseMessage(line []byte) Message { panic("stub") }

// AppendResult, AppendError: one response object without LF. nil id is null.
func AppendResult(dst []byte, id RawJSON, result []byte) []byte { panic("stub") }
func AppendError(dst []byte, id RawJSON, e *Error) []byte       { panic("stub") }

// AppendNotification: {"jsonrpc":"2.0","method":m,"params":params}
func AppendNotification(dst []byte, method string, params []byte) []byte { panic("stub") }

// ---- wire.go: the event line. A stored line is the tail of the notification:
//   "seq":N,"ts":N,"run":N,"source":"child",["commandId":"…",]"event":BODY}}
// so that prefix + line + LF is a whole notification:
//   {"jsonrpc":"2.0","method":"event","params":{"subscriptionId":7,"sessionId":"S",["epoch":"…",]  + line

// AppendEventLine appends the stored line of e, without LF.
func AppendEventLine(dst []byte, e *Event) []byte { panic("stub") }

// ParseEventLine is its inverse; Body aliases line.
func ParseEventLine(line []byte) (Event, error) { panic("stub") }

// LineSource returns only the source of a stored line, cheaply.
func LineSource(line []byte) Source { panic("stub") }

// AppendEventPrefix appends what precedes a stored line in a notification; epoch "" is left out.
func AppendEventPrefix(dst []byte, subscription uint64, session string, epoch Epoch) []byte {
	panic("stub")
}

// AppendEventObject appends one member of read_events: {"sessionId":"S",line-without-its-last-brace
func AppendEventObject(dst []byte, session string, line []byte) []byte { panic("stub") }

// ---- childline.go: what a line of a child becomes

// ChildLine turns one stdout line (without LF; CR and, when first, BOM are dropped) into an event body.
// jsonLines: whether the adapter speaks JSON. ok is false for a blank line.
// Valid JSON -> source child, body verbatim (white space around it kept as printed is fine to trim).
// Not JSON -> broker error {"type":"error","error":"invalid json: …","text":…}; lines adapter -> broker {"type":"output","text":…};
// invalid UTF-8 -> broker {"type":"error","error":"invalid utf-8","base64":…}.
func ChildLine(dst []byte, line []byte, first, jsonLines bool) (source Source, body []byte, ok bool) {
	panic("stub")
}

// LineTooLong is the body of the event for a line over the limit.
func LineTooLong(bytes int64, preview []byte) []byte { panic("stub") }
