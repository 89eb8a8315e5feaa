package journal

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strconv"
)

// parseStored reads the answer to $JS.API.STREAM.MSG.GET: ok is false when
// there is no such message. The message is found by its member names, in the
// server's order, because encoding/json takes milliseconds for a large record;
// whatever looks different goes through encoding/json. Errors: *apiError.
func parseStored(answer []byte) (m rawMsg, ok bool, err error) {
	if m, ok = scanStored(answer); ok {
		return m, true, nil
	}
	var a struct {
		Error   *apiError `json:"error"`
		Message *struct {
			Seq  uint64 `json:"seq"`
			Hdrs []byte `json:"hdrs"`
			Data []byte `json:"data"`
		} `json:"message"`
	}
	if err := json.Unmarshal(answer, &a); err != nil {
		return rawMsg{}, false, fmt.Errorf("decode answer: %w", err)
	}
	switch {
	case a.Error != nil && a.Error.ErrCode == apiNoMessage:
		return rawMsg{}, false, nil
	case a.Error != nil:
		return rawMsg{}, false, a.Error
	case a.Message == nil:
		return rawMsg{}, false, fmt.Errorf("decode answer: neither message nor error")
	}
	return rawMsg{a.Message.Data, a.Message.Seq, backOf(a.Message.Hdrs)}, true, nil
}

// scanStored finds {…"message":{"subject":"…","seq":N,"hdrs":"…","data":"…",…}}.
// The strings are subjects and base64: nothing in them is escaped.
func scanStored(b []byte) (m rawMsg, ok bool) {
	b, ok = cutTo(b, `"message":{"subject":"`)
	if !ok {
		return m, false
	}
	if b, ok = cutTo(b, `","seq":`); !ok {
		return m, false
	}
	end := bytes.IndexByte(b, ',')
	if end < 0 {
		return m, false
	}
	var err error
	if m.pos, err = strconv.ParseUint(string(b[:end]), 10, 64); err != nil {
		return m, false
	}
	b = b[end:]
	const hdrs, data = `,"hdrs":"`, `,"data":"`
	if bytes.HasPrefix(b, []byte(hdrs)) {
		var h []byte
		if h, b, ok = base64String(b[len(hdrs):]); !ok {
			return m, false
		}
		m.back = backOf(h)
	}
	if !bytes.HasPrefix(b, []byte(data)) {
		return m, false
	}
	m.data, _, ok = base64String(b[len(data):])
	return m, ok
}

func cutTo(b []byte, sep string) (rest []byte, ok bool) {
	_, rest, ok = bytes.Cut(b, []byte(sep))
	return rest, ok
}

// base64String decodes up to the closing quote and returns what follows it.
func base64String(b []byte) (v, rest []byte, ok bool) {
	end := bytes.IndexByte(b, '"')
	if end < 0 {
		return nil, nil, false
	}
	v = make([]byte, base64.StdEncoding.DecodedLen(end))
	n, err := base64.StdEncoding.Decode(v, b[:end])
	return v[:n], b[end+1:], err == nil
}
