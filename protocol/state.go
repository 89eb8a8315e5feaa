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
	Items        []Item        `json:"items"`
	ItemsDropped uint64        `json:"itemsDropped"`
	Pending      []Interaction `json:"pending"`
	Queue        Queue         `json:"queue"`
	Exit         *StateExit    `json:"exit,omitempty"`
}

// Turn is the agent's current turn.
type Turn struct {
	ID         string `json:"id"`
	StartedSeq Seq    `json:"startedSeq"`
}

// StateAgent names the agent and the adapter that understands it.
type StateAgent struct {
	Name    string `json:"name"`
	Adapter string `json:"adapter"`
}

// StateExit says how the last run ended, as its session_end told.
type StateExit struct {
	Code   *int    `json:"code"`
	Signal *string `json:"signal"`
	Reason string  `json:"reason"`
}

// Item is one entry of the transcript.
type Item struct {
	ID       string `json:"id"`
	Kind     string `json:"kind"`
	Text     string `json:"text,omitempty"`
	Status   string `json:"status"`
	FirstSeq Seq    `json:"firstSeq"`
	LastSeq  Seq    `json:"lastSeq"`
	TS       int64  `json:"ts"`
}

// Interaction is a question the child asks.
type Interaction struct {
	InteractionID string `json:"interactionId"`
	Kind          string `json:"kind"`
	Title         string `json:"title"`
	Seq           Seq    `json:"seq"`
	TS            int64  `json:"ts"`
}

// Queue is what waits to be told to the agent.
type Queue struct {
	Steering []string `json:"steering"`
	FollowUp []string `json:"followUp"`
}

// FoldVersion says which fold made a State.
type FoldVersion struct {
	Adapter string `json:"adapter"`
	Version int    `json:"version"`
}
