package worker

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"

	"rejoin/protocol"
)

// encodeBody returns the body of an event of rejoin's own. Raw members keep
// their bytes.
func encodeBody(v any) []byte {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		panic(fmt.Sprintf("worker: body of %T: %v", v, err)) // our own types: a broken invariant
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n"))
}

// commandBody returns the body of a command event: a protocol.CommandEvent whose
// value is taken over byte for byte.
func commandBody(in *protocol.CommandInput, value, line []byte, held bool) []byte {
	b := make([]byte, 0, len(value)+len(in.ID)+len(in.Client.Name)+256)
	b = append(b, `{"type":"command","commandId":`...)
	b = protocol.AppendString(b, in.ID)
	b = append(b, `,"client":{"name":`...)
	b = protocol.AppendString(b, in.Client.Name)
	b = append(b, `,"connection":`...)
	b = strconv.AppendUint(b, in.Client.Connection, 10)
	b = append(b, '}')
	if in.Verb == "" {
		b = append(append(b, `,"command":`...), value...)
	} else {
		b = append(b, `,"verb":`...)
		b = protocol.AppendString(b, in.Verb)
		b = append(append(b, `,"params":`...), value...)
	}
	if in.Verb != "" || !bytes.Equal(line, value) {
		b = append(b, `,"line":`...)
		b = protocol.AppendString(b, string(line))
	}
	if held {
		b = append(b, `,"held":true`...)
	}
	return append(b, '}')
}

// errorBody returns the body of an error event.
func errorBody(what string) []byte {
	b := append([]byte(nil), `{"type":"error","error":`...)
	return append(protocol.AppendString(b, what), '}')
}

// stderrBody returns the body of a stderr event; dropped says how many bytes
// before it found no room.
func stderrBody(text []byte, dropped int64) []byte {
	b := make([]byte, 0, len(text)+64)
	b = append(b, `{"type":"stderr","text":`...)
	b = protocol.AppendString(b, string(text))
	if dropped > 0 {
		b = append(b, `,"dropped":`...)
		b = strconv.AppendInt(b, dropped, 10)
	}
	return append(b, '}')
}
