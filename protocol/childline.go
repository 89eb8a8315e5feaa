package protocol

import (
	"encoding/base64"
	"strconv"
	"unicode/utf8"
)

// ChildLine turns one stdout line (without LF; TrimLine is applied, first says
// whether it begins the stream) into an event's source and body. JsonLines says
// whether the adapter speaks JSON. Ok is false for a blank line.
//
//   - Valid JSON of a JSON adapter: source child, the body is the line verbatim,
//     white space around it included. It aliases line.
//   - Other text: {"type":"error","error":"invalid json: …","text":…} for a JSON
//     adapter, {"type":"output","text":…} for others.
//   - Bytes that are not UTF-8: {"type":"error","error":"invalid utf-8","base64":…}.
//
// What it makes is appended to dst and returned without dst's old content; at
// worst (control characters in text) it is six times the line.
func ChildLine(dst, line []byte, first, jsonLines bool) (source Source, body []byte, ok bool) {
	line = TrimLine(line, first)
	if len(line) == 0 || jsonLines && skipSpace(line, 0) == len(line) {
		return 0, nil, false
	}
	from := len(dst)
	var why error
	if jsonLines {
		if why = ValidateJSON(line); why == nil {
			return SourceChild, line, true
		}
	}
	switch {
	case !utf8.Valid(line):
		dst = append(dst, `{"type":"error","error":"invalid utf-8","base64":"`...)
		dst = base64.StdEncoding.AppendEncode(dst, line)
		dst = append(dst, `"}`...)
	case jsonLines:
		dst = append(dst, `{"type":"error","error":`...)
		dst = AppendString(dst, "invalid json: "+why.Error())
		dst = append(dst, `,"text":`...)
		dst = appendString(dst, line)
		dst = append(dst, '}')
	default:
		dst = append(dst, `{"type":"output","text":`...)
		dst = appendString(dst, line)
		dst = append(dst, '}')
	}
	return SourceBroker, dst[from:], true
}

// LineTooLong returns the body of the event for a line over the limit: its
// length without LF and the head of it, cut to EventPreviewBytes between
// characters.
func LineTooLong(bytes int64, preview []byte) []byte {
	preview = cutText(preview, EventPreviewBytes)
	body := make([]byte, 0, len(preview)+96)
	body = append(body, `{"type":"error","error":"line exceeds limit","bytes":`...)
	body = strconv.AppendInt(body, bytes, 10)
	body = append(body, `,"preview":`...)
	body = appendString(body, preview)
	return append(body, '}')
}

// cutText returns at most n bytes of b without the start of a character that is
// cut off at the end.
func cutText(b []byte, n int) []byte {
	b = b[:min(n, len(b))]
	for back := 1; back < utf8.UTFMax && back <= len(b); back++ {
		if tail := b[len(b)-back:]; utf8.RuneStart(tail[0]) {
			if !utf8.FullRune(tail) {
				b = b[:len(b)-back]
			}
			break
		}
	}
	return b
}
