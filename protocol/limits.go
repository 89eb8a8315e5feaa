package protocol

import "time"

// Limits of identifiers.
const (
	SessionIDBytesMax = 64  // one NATS subject token, a file name
	CommandIDBytesMax = 128 // stands in every event that answers the command
)

// Limits of client requests.
const (
	RequestBytesDefault   = 1 << 20   // --max-request-bytes: one line of a client
	NestingMax            = 128       // arrays and objects inside each other in a request
	BatchMembersMax       = 100       // requests in one batch array
	RequestsQueuedMax     = 64        // per connection, waiting behind another of their session
	RequestsInWorkMax     = 32        // per connection, being answered
	SubscriptionsMax      = 1024      // per connection
	WatchesMax            = 8         // watch_sessions per connection
	ResponseBytesQueued   = 4 << 20   // per connection; above it no further request is read until the client reads
	GatherBuffersMax      = 256       // per server: writers that gather 64 KiB for one write; the others gather 4 KiB
	UnsentBytesMax        = 128 << 10 // per TCP connection: what the kernel holds that is not on its way (TCP_NOTSENT_LOWAT)
	CommandStatusIDsMax   = 64        // ids of one command_status
	ReadEventsMax         = 1000      // events of one read_events
	ReadEventsBytes       = 1 << 20   // bytes of one read_events unless maxBytes says less or, up to ReadEventsBytesMax, more
	ReadEventsBytesMax    = 8 << 20
	ConnectionsMaxDefault = 20000   // per server
	HandshakesMax         = 512     // per tls listener: connections that are not secured yet
	RefusalsMax           = 256     // surplus connections that are being told so; more are closed at once
	VerifiesMax           = 2       // verify_session at a time
	WorkerRequestsMax     = 2048    // in work at a worker besides commands: starts, resumes, stops, titles
	AdminConnectionsMax   = 16      // to the admin endpoint; more wait in the kernel
	LogBytesQueued        = 1 << 20 // of lines that wait to be written to the server's log
	ReconnectURLsMax      = 16      // that a draining server names to a client
	GatewaysKnownMax      = 1024    // other gateways that one knows; more are not named to clients

	RequestsPerSecondDefault = 1000 // per connection; above it no further request is read for a moment
)

// Limits of tokens.
const (
	TokensMax         = 4096    // in a token file
	TokenFileBytesMax = 2 << 20 // a token file

	ConnectionsPerTokenDefault = 1000  // of a token file's; the server's own has ConnectionsMaxDefault
	SessionsPerTokenDefault    = 200   // live ones that a token of a token file started
	SessionsKeptDefault        = 10000 // of a workspace, live and ended: those that are not deleted
	AuthFailuresDefault        = 20    // wrong tokens of one address within AuthFailureWindow
	AuthSourcesMax             = 4096  // addresses of wrong tokens that are remembered

	AuditEntriesQueued = 4096     // that wait to be written to the audit log
	AuditBytesMax      = 16 << 20 // of its file; then it is rotated
	AuditFilesMax      = 8        // rotated ones that are kept
)

// Limits of child output and input.
const (
	EventBytesDefault    = 8 << 20   // --max-event-bytes: one line of a child
	EventPreviewBytes    = 1024      // of a line over the limit, kept in its error event
	StderrTailBytes      = 64 << 10  // of each run, kept beside the data
	StderrQueuedBytes    = 1 << 20   // per run with stderr events: those that are not durable yet
	StderrExitBytes      = 2 << 10   // of that, shown in SessionInfo.exit
	StdinQueueBytesMax   = 16 << 20  // per session: admitted input that the child has not read
	StdinQueueLinesMax   = 1024      // per session
	RecordBytesMax       = 256 << 10 // one group commit
	RecordEventsMax      = 1024      // one group commit
	PartBytesMax         = 4 << 20   // a larger event is stored in parts
	SessionsLiveDefault  = 1000      // children at a time per worker
	CallsOpenMax         = 4096      // per run: commands that wait for the child's answer or are held back
	RepeatsWaitingMax    = 64        // of one command id, while its record is not durable
	AnswerBytesMax       = 1 << 20   // an answer to an interaction shares a record with what it resolves
	RestartsPerWindowMax = 3         // restarts by policy
	BrokerRequestsMax    = 1024      // in work at a broker, from gateways without one
	LabelsMax            = 16        // of a session, or of a worker
	LabelBytesMax        = 64        // a label's name, and its value
)

// Limits of a State; what is over one leaves or is cut, and the state says so.
const (
	StateItemsMax   = 500
	StateItemsBytes = 1 << 20 // of all items as encoded
	ItemTextBytes   = 64 << 10
	InteractionsMax = 64 // open ones; a further question is dismissed
	OpenItemsMax    = 64 // items that still grow
	NotesMax        = 32
	NoteBytes       = 1 << 10
	QueueLinesMax   = 32
	QueueTextBytes  = 4 << 10
)

// Limits of the journal's disk. Percentages are of the whole file system, bytes
// and percentages whichever is less; a state ends a quarter above its threshold.
const (
	DiskTightBytes      = 1 << 30   // free space below it: output of children waits
	DiskTightPercentMax = 10        // the same on a small file system
	DiskFullBytes       = 256 << 20 // free space below it: new commands and sessions are refused
	DiskFullPercentMax  = 5         // the same on a small file system
	JournalBytesMin     = 256 << 20 // least journal.maxBytes
)

// Limits of one shard, in percent of its part of journal.maxBytes.
const (
	ShardTightPercent    = 85 // from here on output of its sessions waits
	ShardTightEndPercent = 80 // until it is below this
	ShardFullPercent     = 95 // from here on new commands and sessions are refused, too
	ShardFullEndPercent  = 90 // until it is below this
)

// Limits of servers that keep the journal together.
const (
	ClusterMembers        = 3  // no more and no fewer: as many as there are copies
	ClusterNameBytesMax   = 64 // of NATS subjects, like the names of its members
	ClusterSecretBytesMin = 16 // what members show each other
)

// Times.
const (
	AuthTimeoutDefault  = 10 * time.Second // --auth-timeout
	WriteTimeoutDefault = 60 * time.Second // --write-timeout
	GatherWaitMax       = time.Millisecond // that an event may wait for the next ones, if the last write was less than this ago
	RequestsBurst       = 2 * time.Second  // of its rate that a connection may use at once after being quiet
	GraceDefault        = 5 * time.Second  // kill ladder of stop_session
	GraceServerStop     = 4 * time.Second  // kill ladder of a server stop
	GraceMax            = 5 * time.Minute
	RestartWindow       = 10 * time.Minute
	AuthFailureWindow   = time.Minute      // then an address may try again
	MemberAnswerWait    = 2 * time.Second  // for the answers of other members, then they are asked again
	DispatchTimeout     = 10 * time.Second // a command's answer from its owner; after it the outcome is unknown
)
