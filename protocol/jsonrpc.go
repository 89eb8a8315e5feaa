package protocol

import "strconv"

// A Call is one member of a Message: a request, a notification, or what is
// wrong with it. Its bytes alias the line.
type Call struct {
	ID     RawJSON // byte for byte; nil for a notification: nothing is answered
	Method string
	Params RawJSON // any JSON value, see ParseParams; nil when absent
	Err    *Error  // set: not a request; answer it with ID, which is null
}

// A Message is one line of a client.
type Message struct {
	Calls     []Call
	Batch     bool    // answer with an array (JSON-RPC 2.0 §6)
	Heartbeat RawJSON // set: a bare {"type":"ping","timestamp":T}; T's bytes, null when absent
}

// ParseMessage parses one line; white space around it is allowed, see TrimLine
// for what else a line may carry. It never fails: what is wrong is in
// Calls[].Err. A blank line gives no calls.
func ParseMessage(line []byte) Message {
	i := skipSpace(line, 0)
	if i == len(line) {
		return Message{}
	}
	if at, f := scan(line, NestingMax); f != faultNone {
		e := Errorf(ReasonParse, "parse error: %s", syntaxError(line, at, f))
		if f == faultNesting {
			e = Errorf(ReasonParse, "parse error: %s, at most %d levels", syntaxError(line, at, f), NestingMax).Met("NestingMax")
		}
		return refused(e)
	}
	switch line[i] {
	case '{':
		return parseSingle(line[i:valueEnd(line, i)])
	case '[':
		return parseBatch(line[i:])
	}
	return refused(invalidRequest("not an object"))
}

func refused(e *Error) Message { return Message{Calls: []Call{{ID: nullID, Err: e}}} }

func invalidRequest(why string) *Error {
	return Errorf(ReasonInvalidRequest, "invalid request: %s", why)
}

var nullID = RawJSON("null")

func parseSingle(b []byte) Message {
	var buf [8]member
	members := parseMembers(b, buf[:0])
	call := parseCall(b, members)
	if call.Err != nil && call.Err.Reason == ReasonInvalidRequest {
		if t, ok := heartbeat(b, members); ok {
			return Message{Heartbeat: t}
		}
	}
	return Message{Calls: []Call{call}}
}

// parseBatch takes the array at the start of b apart.
func parseBatch(b []byte) Message {
	m := Message{Batch: true}
	var buf [8]member
	for i := skipSpace(b, 1); i < len(b) && b[i] != ']'; {
		if len(m.Calls) == BatchMembersMax {
			return refused(invalidRequest("a batch of more than " + strconv.Itoa(BatchMembersMax)).Met("BatchMembersMax"))
		}
		end := valueEnd(b, i)
		call := Call{ID: nullID, Err: invalidRequest("not an object")}
		if b[i] == '{' {
			call = parseCall(b[i:end], parseMembers(b[i:end], buf[:0]))
		}
		m.Calls = append(m.Calls, call)
		i = skipSpace(b, end)
		if i < len(b) && b[i] == ',' {
			i = skipSpace(b, i+1)
		}
	}
	if len(m.Calls) == 0 {
		return refused(invalidRequest("an empty batch"))
	}
	return m
}

// parseCall reads the request object b, whose members are given.
func parseCall(b []byte, members []member) Call {
	bad := func(why string) Call { return Call{ID: nullID, Err: invalidRequest(why)} }
	if name, repeated := repeatedName(b); repeated {
		return bad("member " + strconv.Quote(string(name)) + " is repeated")
	}
	var c Call
	method := false
	for _, m := range members {
		switch string(m.name) {
		case "jsonrpc":
			if m.value[0] != '"' || string(unquote(m.value)) != "2.0" {
				return bad(`jsonrpc is not "2.0"`)
			}
		case "id":
			switch m.value[0] {
			case '{', '[', 't', 'f':
				return bad("id must be a string, a number or null")
			}
			c.ID = m.value
		case "method":
			if m.value[0] != '"' {
				return bad("method is not a string")
			}
			c.Method, method = string(unquote(m.value)), true
		case "params":
			c.Params = m.value
		}
	}
	if !method {
		return bad("method is missing")
	}
	return c
}

// heartbeat recognises rpi's {"type":"ping","timestamp":T}.
func heartbeat(b []byte, members []member) (RawJSON, bool) {
	if _, repeated := repeatedName(b); repeated {
		return nil, false
	}
	t, ping := nullID, false
	for _, m := range members {
		switch string(m.name) {
		case "id", "method", "jsonrpc":
			return nil, false
		case "type":
			ping = m.value[0] == '"' && string(unquote(m.value)) == "ping"
		case "timestamp":
			t = m.value
		}
	}
	return t, ping
}

// AppendResult appends a response without LF. A nil id is null.
func AppendResult(dst []byte, id RawJSON, result []byte) []byte {
	dst = appendID(dst, id)
	dst = append(dst, `,"result":`...)
	dst = append(dst, result...)
	return append(dst, '}')
}

// AppendError appends an error response without LF. A nil id is null.
func AppendError(dst []byte, id RawJSON, e *Error) []byte {
	dst = appendID(dst, id)
	dst = append(dst, `,"error":{"code":`...)
	dst = strconv.AppendInt(dst, int64(e.Code()), 10)
	dst = append(dst, `,"message":`...)
	dst = AppendString(dst, e.Message)
	dst = append(dst, `,"data":{"reason":`...)
	dst = AppendString(dst, string(e.Reason))
	dst = append(dst, `,"retryable":`...)
	dst = strconv.AppendBool(dst, e.Retryable)
	if e.Head != nil {
		dst = append(dst, `,"head":`...)
		dst = strconv.AppendUint(dst, uint64(*e.Head), 10)
	}
	if e.Floor != nil {
		dst = append(dst, `,"floor":`...)
		dst = strconv.AppendUint(dst, uint64(*e.Floor), 10)
	}
	if e.Epoch != "" {
		dst = append(dst, `,"epoch":`...)
		dst = AppendString(dst, string(e.Epoch))
	}
	if e.Next != nil {
		dst = append(dst, `,"next":`...)
		dst = strconv.AppendUint(dst, uint64(*e.Next), 10)
	}
	if e.ResolvedBy != "" {
		dst = append(dst, `,"resolvedBy":`...)
		dst = AppendString(dst, e.ResolvedBy)
		dst = append(dst, `,"outcome":`...)
		dst = AppendString(dst, e.Outcome)
	}
	if e.ID != "" {
		dst = append(dst, `,"id":`...)
		dst = AppendString(dst, e.ID)
	}
	return append(dst, `}}}`...)
}

func appendID(dst []byte, id RawJSON) []byte {
	if id == nil {
		id = nullID
	}
	dst = append(dst, `{"jsonrpc":"2.0","id":`...)
	return append(dst, id...)
}

// AppendNotification appends {"jsonrpc":"2.0","method":method,"params":params}
// without LF.
func AppendNotification(dst []byte, method string, params []byte) []byte {
	dst = append(dst, `{"jsonrpc":"2.0","method":`...)
	dst = AppendString(dst, method)
	dst = append(dst, `,"params":`...)
	dst = append(dst, params...)
	return append(dst, '}')
}

// AppendPong appends the answer to a Message's Heartbeat, without LF.
func AppendPong(dst []byte, timestamp RawJSON) []byte {
	dst = append(dst, `{"type":"pong","timestamp":`...)
	dst = append(dst, timestamp...)
	return append(dst, '}')
}
