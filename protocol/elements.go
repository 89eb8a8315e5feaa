package protocol

import "iter"

// Elements walks the elements of the array that b, a valid JSON value, is; of
// anything else it yields none. They alias b.
func Elements(b []byte) iter.Seq[RawJSON] {
	return func(yield func(RawJSON) bool) {
		i := skipSpace(b, 0)
		if i == len(b) || b[i] != '[' {
			return
		}
		for i = skipSpace(b, i+1); i < len(b) && b[i] != ']'; {
			end := valueEnd(b, i)
			if end == i || !yield(RawJSON(b[i:end:end])) {
				return
			}
			i = skipSpace(b, skipSpace(b, end)+1) // the comma or bracket
		}
	}
}
