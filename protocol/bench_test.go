package protocol_test

import (
	"bytes"
	"io"
	"strings"
	"testing"

	"rejoin/protocol"
)

// line250 is a child's line of 250 bytes, as agents stream them.
var line250 = []byte(`{"type":"message_update","usage":{"input":100,"output":2,"cacheRead":0,"cacheWrite":0,"totalTokens":102,"cost":{"input":0,"output":0,"total":0.0125}},"assistantMessageEvent":{"type":"text_delta","contentIndex":0,"delta":"once more unto the br"}}`)

var request = []byte(`{"jsonrpc":"2.0","id":17,"method":"send","params":{"sessionId":"01k0000000000000000000000","command":{"id":"x","type":"prompt","message":"hello"},"commandId":"c-17"}}`)

var event250 = protocol.Event{Seq: 123456, TS: 1796034481989, Run: 3, Source: protocol.SourceChild, CommandID: "c-17", Body: line250}

func BenchmarkValidateJSON(b *testing.B) {
	for _, c := range []struct {
		name string
		text []byte
	}{
		{"line250", line250},
		{"string4k", []byte(`"` + strings.Repeat("plain text ", 372) + `"`)},
		{"utf8-4k", []byte(`"` + strings.Repeat("наука é 日本 ", 160) + `"`)},
		{"escapes4k", []byte(`"` + strings.Repeat(`a \"b\" \n`, 409) + `"`)},
		{"numbers4k", []byte("[" + strings.Repeat("123456,", 584) + "1]")},
		{"deep20k", []byte(strings.Repeat("[", 20000) + strings.Repeat("]", 20000))},
	} {
		b.Run(c.name, func(b *testing.B) {
			b.SetBytes(int64(len(c.text)))
			b.ReportAllocs()
			for b.Loop() {
				if err := protocol.ValidateJSON(c.text); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkParseMessage(b *testing.B) {
	b.SetBytes(int64(len(request)))
	b.ReportAllocs()
	for b.Loop() {
		if m := protocol.ParseMessage(request); m.Calls[0].Err != nil {
			b.Fatal(m.Calls[0].Err)
		}
	}
}

func BenchmarkParams(b *testing.B) {
	params := protocol.ParseMessage(request).Calls[0].Params
	b.ReportAllocs()
	for b.Loop() {
		p, err := protocol.ParseParams(params)
		if err != nil {
			b.Fatal(err)
		}
		if _, ok, err := p.String("sessionId"); !ok || err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkReadLine(b *testing.B) {
	stream := bytes.Repeat(append(append([]byte(nil), line250...), '\n'), 1000)
	for _, c := range []struct {
		name    string
		initial int
	}{{"512", 512}, {"64KiB", 64 << 10}} {
		b.Run(c.name, func(b *testing.B) {
			b.SetBytes(int64(len(line250) + 1))
			b.ReportAllocs()
			l := protocol.NewLineReader(&endless{stream: stream}, protocol.EventBytesDefault, c.initial)
			for b.Loop() {
				if _, err := l.ReadLine(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// endless reads stream again and again.
type endless struct {
	stream []byte
	at     int
}

func (e *endless) Read(p []byte) (int, error) {
	n := copy(p, e.stream[e.at:])
	e.at = (e.at + n) % len(e.stream)
	return n, nil
}

var _ io.Reader = (*endless)(nil)

func BenchmarkChildLine(b *testing.B) {
	b.SetBytes(int64(len(line250)))
	b.ReportAllocs()
	for b.Loop() {
		if _, _, ok := protocol.ChildLine(nil, line250, false, true); !ok {
			b.Fatal("blank")
		}
	}
}

func BenchmarkAppendEventLine(b *testing.B) {
	b.ReportAllocs()
	dst := make([]byte, 0, 1024)
	for b.Loop() {
		dst = protocol.AppendEventLine(dst[:0], &event250)
	}
}

func BenchmarkParseEventLine(b *testing.B) {
	line := protocol.AppendEventLine(nil, &event250)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := protocol.ParseEventLine(line); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkLineSource(b *testing.B) {
	line := protocol.AppendEventLine(nil, &event250)
	b.ReportAllocs()
	for b.Loop() {
		if protocol.LineSource(line) != protocol.SourceChild {
			b.Fatal("broker")
		}
	}
}

// BenchmarkNotification is what fan-out does per event and subscriber.
func BenchmarkNotification(b *testing.B) {
	line := protocol.AppendEventLine(nil, &event250)
	prefix := protocol.AppendEventPrefix(nil, 7, "01k0000000000000000000000", "")
	b.ReportAllocs()
	dst := make([]byte, 0, 1024)
	for b.Loop() {
		dst = append(append(append(dst[:0], prefix...), line...), '\n')
	}
}

func BenchmarkAppendString(b *testing.B) {
	text := strings.Repeat("plain text, 日本 and \"quotes\"\n", 100)
	b.SetBytes(int64(len(text)))
	b.ReportAllocs()
	dst := make([]byte, 0, 2*len(text))
	for b.Loop() {
		dst = protocol.AppendString(dst[:0], text)
	}
}
