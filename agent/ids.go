package agent

import (
	"bytes"
	"strconv"

	"rejoin/protocol"
)

// ClientIDBytesMax is the longest id value of a raw command that is remembered for
// the answer.
const ClientIDBytesMax = 1024

// callID is the id of a run's n-th command towards the child, and the command id
// of the ones that are rejoin's own.
func callID(run protocol.Run, n uint64) string {
	return "rj:" + strconv.FormatUint(uint64(run), 10) + ":" + strconv.FormatUint(n, 10)
}

// clientID finds the id member of a command; its End is zero where there is none.
func clientID(line []byte) (at protocol.MemberSpan) {
	for m := range protocol.Members(line) {
		if string(m.Name) == "id" {
			at = m
		}
	}
	return at
}

// putID gives the object line the id towards the child, in the place of the
// client's own, whose bytes it returns (nil: it had none). Nothing else changes.
func putID(line []byte, id string) (out []byte, own protocol.RawJSON) {
	out = make([]byte, 0, len(line)+len(id)+len(`"id":"",`))
	if m := clientID(line); m.End > 0 {
		out = protocol.AppendString(append(out, line[:m.ValueAt]...), id)
		return append(out, line[m.End:]...), bytes.Clone(m.Value)
	}
	open := bytes.IndexByte(line, '{') + 1
	out = append(out, line[:open]...)
	out = protocol.AppendString(append(out, `"id":`...), id)
	if rest := bytes.TrimSpace(line[open:]); len(rest) > 0 && rest[0] != '}' {
		out = append(out, ',')
	}
	return append(out, line[open:]...), nil
}

// ownID finds the last top-level member id of a child's line whose value is
// exactly quote, prefix and a number from 1 to most; prefix starts with the quote.
func ownID(line, prefix []byte, most uint64) (at protocol.MemberSpan, n uint64) {
	if !bytes.Contains(line, prefix[1:]) { // without the quote, which is everywhere
		return at, 0
	}
	for m := range protocol.Members(line) {
		if string(m.Name) != "id" {
			continue
		}
		if k := number(m.Value, prefix); k > 0 && k <= most {
			at, n = m, k
		}
	}
	return at, n
}

// number reads the number of an own id's value; zero when it is none.
func number(value, prefix []byte) uint64 {
	digits, ok := bytes.CutPrefix(value, prefix)
	if !ok || len(digits) < 2 || len(digits) > 20 || digits[0] == '0' || digits[len(digits)-1] != '"' {
		return 0
	}
	var n uint64
	for _, c := range digits[:len(digits)-1] {
		if c < '0' || c > '9' {
			return 0
		}
		n = n*10 + uint64(c-'0')
	}
	return n
}

// restoreID appends line with the client's own id where the member at stands, or
// without that member and one comma where own is nil.
func restoreID(dst, line []byte, at protocol.MemberSpan, own protocol.RawJSON) []byte {
	if own != nil {
		dst = append(dst, line[:at.ValueAt]...)
		dst = append(dst, own...)
		return append(dst, line[at.End:]...)
	}
	from, to := at.At, at.End
	if next := skipSpace(line, to); next < len(line) && line[next] == ',' {
		to = next + 1
	} else if before := bytes.TrimRight(line[:from], " \t\r\n"); len(before) > 0 && before[len(before)-1] == ',' {
		from = len(before) - 1
	}
	dst = append(dst, line[:from]...)
	return append(dst, line[to:]...)
}

func skipSpace(b []byte, i int) int {
	for i < len(b) && (b[i] == ' ' || b[i] == '\t' || b[i] == '\r' || b[i] == '\n') {
		i++
	}
	return i
}
