package protocol

import "bytes"

// namesListed is up to how many names of an object are compared one by one.
const namesListed = 16

// repeatedName looks for an object in b, valid JSON, with two members of the
// same name. Names are compared decoded.
func repeatedName(b []byte) (name []byte, repeated bool) {
	var levelBuf [16]nameLevel
	var nameBuf [32][]byte
	s := nameStack{open: levelBuf[:0], names: nameBuf[:0]}
	expect := false // the next string is a name
	for i := 0; i < len(b); i++ {
		switch b[i] {
		case '{', '[':
			expect = b[i] == '{'
			s = s.push(expect)
		case '}', ']':
			expect = false
			s = s.pop()
		case ',':
			expect = s.inObject()
		case '"':
			end := stringEnd(b, i)
			if expect {
				expect = false
				name = unescape(b[i+1:max(i+1, end-1)], 0)
				if s, repeated = s.add(name); repeated {
					return name, true
				}
			}
			i = end - 1
		}
	}
	return nil, false
}

// A nameStack holds the names so far of the objects that are open. Its methods
// return the new stack, like append, so that small ones stay off the heap.
type nameStack struct {
	open  []nameLevel
	names [][]byte // of all levels, one after the other
}

type nameLevel struct {
	object bool
	first  int                 // of its names in the stack
	seen   map[string]struct{} // all of its names, once they are many
}

func (s nameStack) push(object bool) nameStack {
	s.open = append(s.open, nameLevel{object: object, first: len(s.names)})
	return s
}

func (s nameStack) pop() nameStack {
	if last := len(s.open) - 1; last >= 0 {
		s.names = s.names[:s.open[last].first]
		s.open = s.open[:last]
	}
	return s
}

func (s nameStack) inObject() bool {
	return len(s.open) > 0 && s.open[len(s.open)-1].object
}

// add notes a name of the innermost object and reports whether it is there already.
func (s nameStack) add(name []byte) (_ nameStack, there bool) {
	l := &s.open[len(s.open)-1]
	if l.seen != nil {
		_, there = l.seen[string(name)]
		l.seen[string(name)] = struct{}{}
		return s, there
	}
	mine := s.names[l.first:]
	for _, n := range mine {
		if bytes.Equal(n, name) {
			return s, true
		}
	}
	s.names = append(s.names, name)
	if len(mine)+1 == namesListed {
		l.seen = make(map[string]struct{}, 4*namesListed)
		for _, n := range s.names[l.first:] {
			l.seen[string(n)] = struct{}{}
		}
	}
	return s, false
}
