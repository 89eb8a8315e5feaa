package protocol

import (
	"errors"
	"fmt"
	"maps"
	"slices"
)

// Error codes of the native protocol. JSON-RPC 2.0 §5.1 defines those below
// -32600; the rest are ours.
const (
	CodeParse             = -32700
	CodeInvalidRequest    = -32600
	CodeMethodNotFound    = -32601
	CodeInvalidParams     = -32602
	CodeInternal          = -32603
	CodeSessionNotFound   = -32000
	CodeAuth              = -32001
	CodeModelNotAvailable = -32002
	CodeForbidden         = -32003
	CodeUnavailable       = -32004
	CodeOverloaded        = -32005
	CodeConflict          = -32006
	CodeTooLarge          = -32007
	CodeAlreadyResolved   = -32008
	CodeUnsupported       = -32009
	CodeOutsideLog        = -32010
)

// A Reason is the machine-readable cause of an Error, unique over all codes.
type Reason string

// The reasons. docs/protocol.md has one row for each.
const (
	ReasonParse              Reason = "parse"
	ReasonInvalidRequest     Reason = "invalid_request"
	ReasonMethodNotFound     Reason = "method_not_found"
	ReasonInvalidParams      Reason = "invalid_params"
	ReasonInternal           Reason = "internal"
	ReasonSessionNotFound    Reason = "session_not_found"
	ReasonAuthRequired       Reason = "auth_required"
	ReasonAuthFailed         Reason = "auth_failed"
	ReasonModelNotAvailable  Reason = "model_not_available"
	ReasonForbidden          Reason = "forbidden"
	ReasonSessionUnavailable Reason = "session_unavailable"
	ReasonJournalUnavailable Reason = "journal_unavailable"
	ReasonOutcomeUnknown     Reason = "outcome_unknown"
	ReasonOverloaded         Reason = "overloaded"
	ReasonConflict           Reason = "conflict"
	ReasonTooLarge           Reason = "too_large"
	ReasonAlreadyResolved    Reason = "already_resolved"
	ReasonUnsupported        Reason = "unsupported"
	ReasonTrimmed            Reason = "trimmed"
	ReasonEpoch              Reason = "epoch"
	ReasonDamaged            Reason = "damaged"
)

// reasons maps each reason to its code and whether the same request may succeed later.
var reasons = map[Reason]struct {
	code      int
	retryable bool
}{
	ReasonParse:              {CodeParse, false},
	ReasonInvalidRequest:     {CodeInvalidRequest, false},
	ReasonMethodNotFound:     {CodeMethodNotFound, false},
	ReasonInvalidParams:      {CodeInvalidParams, false},
	ReasonInternal:           {CodeInternal, false},
	ReasonSessionNotFound:    {CodeSessionNotFound, false},
	ReasonAuthRequired:       {CodeAuth, false},
	ReasonAuthFailed:         {CodeAuth, false},
	ReasonModelNotAvailable:  {CodeModelNotAvailable, false},
	ReasonForbidden:          {CodeForbidden, false},
	ReasonSessionUnavailable: {CodeUnavailable, false},
	ReasonJournalUnavailable: {CodeUnavailable, true},
	ReasonOutcomeUnknown:     {CodeUnavailable, true},
	ReasonOverloaded:         {CodeOverloaded, true},
	ReasonConflict:           {CodeConflict, false},
	ReasonTooLarge:           {CodeTooLarge, false},
	ReasonAlreadyResolved:    {CodeAlreadyResolved, false},
	ReasonUnsupported:        {CodeUnsupported, false},
	ReasonTrimmed:            {CodeOutsideLog, false},
	ReasonEpoch:              {CodeOutsideLog, false},
	ReasonDamaged:            {CodeOutsideLog, false},
}

// Reasons lists every reason there is.
func Reasons() []Reason {
	return slices.Sorted(maps.Keys(reasons))
}

// An Error is an error with a place in the protocol's table. It crosses the bus
// as JSON and reaches the client as {"code","message","data"}.
type Error struct {
	Reason    Reason `json:"reason"`
	Message   string `json:"message"`
	Retryable bool   `json:"retryable"`
	// Facts that some reasons carry into data; nil pointers are left out.
	Head  *Seq  `json:"head,omitempty"`
	Floor *Seq  `json:"floor,omitempty"`
	Epoch Epoch `json:"epoch,omitempty"`
	Next  *Seq  `json:"next,omitempty"` // behind which a damaged log can be read again
	// ResolvedBy and Outcome say how an interaction was resolved.
	ResolvedBy string `json:"resolvedBy,omitempty"`
	Outcome    string `json:"outcome,omitempty"`
	// Limit names the limit that was met, for counting; clients are not told.
	Limit string `json:"limit,omitempty"`
	// ID is the correlation id of an internal error: the log has the cause under it.
	ID string `json:"id,omitempty"`
}

// Errorf returns an Error of the given reason with the table's retry bit.
func Errorf(reason Reason, format string, args ...any) *Error {
	return &Error{Reason: reason, Message: fmt.Sprintf(format, args...), Retryable: reasons[reason].retryable}
}

// Met names the limit that e tells of, as protocol/limits.go has it.
func (e *Error) Met(limit string) *Error {
	e.Limit = limit
	return e
}

// Error returns the message.
func (e *Error) Error() string { return e.Message }

// Code returns the JSON-RPC code of the error's reason.
func (e *Error) Code() int {
	if r, ok := reasons[e.Reason]; ok {
		return r.code
	}
	return CodeInternal
}

// AsError returns err as an Error; anything that is none is reported as not ok.
func AsError(err error) (*Error, bool) {
	var e *Error
	ok := errors.As(err, &e)
	return e, ok
}

// ErrSessionNotFound is what every access to an unknown, deleted or foreign session gets.
func ErrSessionNotFound(id string) *Error {
	return Errorf(ReasonSessionNotFound, "session %s not found", id)
}
