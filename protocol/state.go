package protocol

// State is what the events of a session up to Seq add up to. Its JSON form is
// deterministic: struct order, no maps.
type State struct {
	SessionID    string        `json:"sessionId"`
	Epoch        Epoch         `json:"epoch"`
	Seq          Seq           `json:"seq"`
	Run          Run           `json:"run"`
	Status       Status        `json:"status"`
	Turn         *Turn         `json:"turn"`
	Agent        StateAgent    `json:"agent"`
	Title        string        `json:"title,omitempty"`
	Items        []Item        `json:"items"`        // at most StateItemsMax and StateItemsBytes, oldest first
	ItemsDropped uint64        `json:"itemsDropped"` // how many older ones there were
	Pending      []Interaction `json:"pending"`      // at most InteractionsMax, oldest first
	Queue        Queue         `json:"queue"`
	Usage        *Usage        `json:"usage,omitempty"`
	Exit         *StateExit    `json:"exit,omitempty"`
	Extra        *StateExtra   `json:"extra,omitempty"`

	// Scratch is what folds keep beside the state to be fast. It follows from the
	// rest, so nil is always right, and it belongs to this State alone: whoever
	// changes Items by other means than a fold sets it to nil.
	Scratch any `json:"-"`
}

// Turn is the agent's current turn.
type Turn struct {
	ID         string `json:"id"` // "t" and the seq of the event that began it
	StartedSeq Seq    `json:"startedSeq"`
}

// StateAgent names the agent and the adapter that understands it.
type StateAgent struct {
	Name    string `json:"name"`
	Adapter string `json:"adapter"`
	Model   string `json:"model,omitempty"`
}

// Usage is what the agent said it has used, over the session.
type Usage struct {
	InputTokens  uint64  `json:"inputTokens,omitempty"`
	OutputTokens uint64  `json:"outputTokens,omitempty"`
	CostUSD      float64 `json:"costUsd,omitempty"`
}

// StateExit says how the last run ended, as its session_end told.
type StateExit struct {
	Code   *int    `json:"code"`
	Signal *string `json:"signal"`
	Reason string  `json:"reason"`
}

// StateExtra is what adapters keep for themselves, so that a fold may stop at
// any event and go on from the state alone. Clients may show it, and need not.
type StateExtra struct {
	AgentSession string     `json:"agentSession,omitempty"` // the agent's own session id or file, for {agentSessionId}
	Thinking     string     `json:"thinking,omitempty"`     // the agent's thinking level
	Settles      bool       `json:"settles,omitempty"`      // the agent says when it has settled: before that no end of its run counts
	Open         []OpenItem `json:"open,omitempty"`         // items that still grow, oldest first; at most OpenItemsMax
	Asked        string     `json:"asked,omitempty"`        // marks of the questions of this run, so that one whose id comes again is told from the first
	Notes        []Note     `json:"notes,omitempty"`        // last values of things the agent sets (status, widget, title), by key, sorted; at most NotesMax
}

// OpenItem binds a name of the agent's (a content index, a call id) to the item
// that grows under it.
type OpenItem struct {
	Name string `json:"name"`
	Item string `json:"item"`
}

// Note is one last value.
type Note struct {
	Key  string `json:"key"`
	Text string `json:"text"`
}

// Item is one entry of the transcript.
type Item struct {
	ID        string    `json:"id"` // "i", the seq of its first event, and ".n" for the n-th of that event from the second on
	Kind      ItemKind  `json:"kind"`
	Text      string    `json:"text,omitempty"` // at most ItemTextBytes: head and tail of a longer one
	Tool      *ItemTool `json:"tool,omitempty"`
	Status    string    `json:"status"` // streaming, done, error, interrupted
	FirstSeq  Seq       `json:"firstSeq"`
	LastSeq   Seq       `json:"lastSeq"`
	TS        int64     `json:"ts"`
	Truncated uint64    `json:"truncated,omitempty"` // bytes left out of Text (of tool items: of Args and Output)
}

// ItemKind is what an Item is.
type ItemKind string

// The kinds of items.
const (
	ItemUser      ItemKind = "user"
	ItemAssistant ItemKind = "assistant"
	ItemThinking  ItemKind = "thinking"
	ItemToolCall  ItemKind = "tool"
	ItemNotice    ItemKind = "notice"
	ItemOutput    ItemKind = "output"
)

// The statuses of an Item.
const (
	ItemStreaming   = "streaming"
	ItemDone        = "done"
	ItemError       = "error"
	ItemInterrupted = "interrupted"
)

// ItemTool is what an Item of kind tool says of its call.
type ItemTool struct {
	Name    string `json:"name"`
	CallID  string `json:"callId"`
	Args    string `json:"args"`   // the agent's JSON value as text
	Output  string `json:"output"` // text of the result, so far
	IsError bool   `json:"isError"`

	ArgsTruncated uint64 `json:"argsTruncated,omitempty"` // of Item.Truncated, the bytes left out of Args
}

// Interaction is a question the child asks.
type Interaction struct {
	InteractionID  string   `json:"interactionId"` // run, a dot, the agent's id; "#" and Seq behind it where that id came before
	Kind           string   `json:"kind"`          // approval, select, confirm, input, editor
	Title          string   `json:"title"`
	Message        string   `json:"message,omitempty"`   // of an editor: the text to begin with
	Truncated      uint64   `json:"truncated,omitempty"` // bytes left out of Message
	Options        []Option `json:"options,omitempty"`
	OptionsOmitted uint64   `json:"optionsOmitted,omitempty"` // how many more there are: too many, too long, or no texts
	Tool           string   `json:"tool,omitempty"`
	Seq            Seq      `json:"seq"`
	TS             int64    `json:"ts"`
	Deadline       int64    `json:"deadline,omitempty"` // ms since 1970 when the agent stops waiting
}

// Option is one choice of a select.
type Option struct {
	ID    string `json:"id"`
	Label string `json:"label"`
}

// Queue is what waits to be told to the agent; at most QueueLinesMax of each, texts at most QueueTextBytes.
type Queue struct {
	Steering []string `json:"steering"`
	FollowUp []string `json:"followUp"`
}

// FoldVersion says which fold made a State.
type FoldVersion struct {
	Adapter string `json:"adapter"`
	Version int    `json:"version"`
}
