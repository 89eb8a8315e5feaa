package tui

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"

	"rejoin/client"
	"rejoin/cmd/rejoin/internal/view"
	"rejoin/protocol"
)

// requestTimeout bounds one request of the user.
const requestTimeout = 30 * time.Second

// model is what is on the screen. Bubble Tea calls it from one goroutine.
type model struct {
	ctx     context.Context // of Run
	client  *client.Client
	session string
	view    *view.View

	width, height int
	input         input
	text          transcript
	all           bool // thoughts and outputs are shown whole
	up            int  // lines scrolled up from the end
	total         int  // lines of the transcript when it was last drawn
	room          int  // of them the screen had place for

	older  older
	gap    bool // items between older and the state are not at hand
	link   client.Link
	synced bool
	note   string // said to the user until the next key
	bad    bool   // note is an error
	asked  int    // requests in work
	waits  string // why the session waits for the journal
	sent   []sent // oldest first; at most sentMax
	// answering is the question whose answer is on its way, or was taken.
	answering string
	// editing is the question whose text to begin with was put into the line.
	editing string
	fatal   error  // why the subscription is over
	gone    string // why the server ended it
}

var _ tea.Model = (*model)(nil)

// The messages that Run's goroutines send.
type (
	batchMsg []client.Message
	linkMsg  client.Link
	waitMsg  string // why the session waits; empty: it does not
	endMsg   struct{ err error }
	// doneMsg is the answer of a request.
	doneMsg struct{ err error }
)

// Init begins with nothing.
func (m *model) Init() tea.Cmd { return nil }

// Update takes what the terminal and the subscription bring.
func (m *model) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	switch msg := msg.(type) {
	case tea.WindowSizeMsg:
		m.width, m.height = msg.Width, msg.Height
	case tea.PasteMsg:
		m.input.insert(msg.Content)
	case tea.KeyPressMsg:
		return m, m.key(msg)
	case batchMsg:
		return m, m.take(msg)
	case linkMsg:
		m.link = client.Link(msg)
		m.synced = m.synced && m.link.State == client.LinkConnected
	case waitMsg:
		m.waits = string(msg)
	case endMsg:
		m.fatal = msg.err
		if m.gone != "" {
			return m, nil // stays readable
		}
		return m, tea.Quit
	case olderMsg:
		m.takeOlder(msg)
	case sentMsg:
		m.answered(msg)
	case doneMsg:
		m.asked--
		if msg.err != nil {
			m.answering = "" // it may be tried again
			m.fail(msg.err)
		}
	}
	return m, nil
}

// take folds messages of the subscription.
func (m *model) take(batch []client.Message) tea.Cmd {
	for _, msg := range batch {
		var before []protocol.Item
		if s := m.view.State(); s != nil && len(m.older.items) > 0 {
			before = slices.Clone(s.Items)
		}
		if err := m.view.Take(msg); err != nil {
			m.fatal = err
			return tea.Quit
		}
		switch msg.Kind {
		case client.KindSnapshot:
			m.forgetOlder()
			m.up, m.sent = 0, nil
			if r := msg.Snapshot.Reason; r != "requested" {
				m.say("the events before this are not kept (" + r + ")")
			}
		case client.KindEvent:
			m.keepDropped(before)
			m.settle(&msg.Event.Event)
		case client.KindSynced:
			m.synced = true
		case client.KindEnd:
			m.gone = msg.End.Reason
		}
	}
	return nil
}

// key does what a key is for.
func (m *model) key(k tea.KeyPressMsg) tea.Cmd {
	m.note, m.bad = "", false
	name := k.String()
	switch name {
	case "ctrl+c", "ctrl+d":
		return tea.Quit
	case "enter":
		return m.enter(false)
	case "alt+enter", "ctrl+f":
		return m.enter(true)
	case "ctrl+t":
		m.all = !m.all
		return nil
	case "ctrl+r":
		return m.resume()
	}
	if q := m.question(); q != nil {
		if cmd := m.answerKey(q, name); cmd != nil {
			return cmd
		}
		if q.Kind == "editor" && name == "tab" {
			m.editText(q)
			return nil
		}
	}
	if name == "esc" {
		return m.interrupt()
	}
	if cmd, ok := m.scroll(name); ok {
		return cmd
	}
	if !m.input.edit(name) && k.Text != "" {
		m.input.insert(k.Text)
	}
	return nil
}

// scroll moves through the transcript; false when the key is not for that.
func (m *model) scroll(name string) (tea.Cmd, bool) {
	page := max(1, m.room-1)
	switch name {
	case "pgup":
		m.up += page
	case "pgdown":
		m.up -= page
	case "up":
		m.up++
	case "down":
		m.up--
	case "home":
		m.up = m.total
	case "end":
		m.up = 0
	default:
		return nil, false
	}
	top := max(0, m.total-m.room)
	m.up = min(max(m.up, 0), top)
	if m.up == 0 {
		m.forgetOlder()
	}
	if m.up == top && (name == "pgup" || name == "home" || name == "up") {
		return m.wantOlder(), true
	}
	return nil, true
}

// enter sends what was typed: the answer to a question, a prompt, or while the
// agent works a word to steer it; later says that it may wait.
func (m *model) enter(later bool) tea.Cmd {
	q := m.question()
	if q != nil && !later && m.input.empty() {
		return m.acceptText(q)
	}
	if m.view.State() == nil || m.input.empty() {
		return nil
	}
	if q != nil && !later {
		cmd := m.answerText(q, string(m.input.text))
		if cmd != nil {
			m.input.take()
		}
		return cmd
	}
	text := m.input.take()
	if strings.TrimSpace(text) == "" {
		return nil
	}
	m.up = 0
	m.forgetOlder()
	return m.tell(text, later)
}

// speak gives the agent a text in the way that suits it.
func (m *model) speak(ctx context.Context, o client.SendOptions, adapter, text string, later, busy bool) error {
	var err error
	switch {
	case adapter == "jsonl" && json.Valid([]byte(text)):
		_, err = m.client.Send(ctx, m.session, json.RawMessage(text), o)
	case adapter == "jsonl":
		err = errors.New("this program takes JSON values only")
	case later:
		_, err = m.client.FollowUp(ctx, m.session, text, o)
	case busy:
		_, err = m.client.Steer(ctx, m.session, text, o)
	default:
		_, err = m.client.Prompt(ctx, m.session, text, o)
	}
	return err
}

// interrupt ends the turn that the user sees, and no later one.
func (m *model) interrupt() tea.Cmd {
	s := m.view.State()
	if s == nil || s.Turn == nil {
		if !m.input.empty() {
			m.input.take()
		}
		return nil
	}
	turn := s.Turn.ID
	return m.request(func() error {
		ctx, cancel := m.within()
		defer cancel()
		_, err := m.client.Interrupt(ctx, m.session, client.SendOptions{Expect: protocol.Expect{Turn: &turn}})
		return err
	})
}

// resume runs an ended session again.
func (m *model) resume() tea.Cmd {
	s := m.view.State()
	if s == nil || s.Status.State() == "running" {
		m.say("the program runs")
		return nil
	}
	id := client.NewCommandID()
	return m.request(func() error {
		ctx, cancel := m.within()
		defer cancel()
		_, err := m.client.Retry(ctx, "resume_session", map[string]any{"sessionId": m.session, "commandId": id})
		return err
	})
}

// request runs f beside the screen.
func (m *model) request(f func() error) tea.Cmd {
	m.asked++
	return func() tea.Msg { return doneMsg{f()} }
}

func (m *model) within() (context.Context, context.CancelFunc) {
	return context.WithTimeout(m.ctx, requestTimeout)
}

func (m *model) say(note string) { m.note, m.bad = note, false }

// fail tells the user what went wrong.
func (m *model) fail(err error) {
	var rpc *client.RPCError
	if errors.As(err, &rpc) && rpc.Code == protocol.CodeAlreadyResolved {
		if by, outcome := rpc.Resolved(); by != "" {
			m.say(fmt.Sprintf("%s has answered already: %s", by, outcome))
			return
		}
	}
	m.note, m.bad = err.Error(), true
}
