package protocol

import "iter"

// A MemberSpan says where one member of an object stands in its text.
type MemberSpan struct {
	Name  []byte // decoded; aliases the text where it has no escapes
	Value []byte // aliases the text

	At      int // of the name's opening quote
	ValueAt int
	End     int // behind the value
}

// Members walks the members of the object that b, a valid JSON value, is; of
// anything else it yields none.
func Members(b []byte) iter.Seq[MemberSpan] {
	return func(yield func(MemberSpan) bool) {
		i := skipSpace(b, 0)
		if i == len(b) || b[i] != '{' {
			return
		}
		i = skipSpace(b, i+1)
		for i < len(b) && b[i] == '"' {
			at, end := i, stringEnd(b, i)
			name := b[i+1 : max(i+1, end-1)]
			i = skipSpace(b, skipSpace(b, end)+1) // the colon
			if i >= len(b) {
				return
			}
			if end = valueEnd(b, i); end == i {
				return
			}
			if !yield(MemberSpan{Name: unescape(name, 0), Value: b[i:end:end], At: at, ValueAt: i, End: end}) {
				return
			}
			i = skipSpace(b, skipSpace(b, end)+1) // the comma or brace
		}
	}
}
