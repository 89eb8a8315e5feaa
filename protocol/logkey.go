package protocol

// Attribute keys of log lines.
const (
	LogSession = "session"
	LogSeq     = "seq"
	LogEpoch   = "epoch"
	LogRun     = "run"
	LogConn    = "conn"
	LogWorker  = "worker"
	LogCommand = "command"
	LogError   = "error"
	LogPID     = "pid"
	LogBytes   = "bytes"
	LogStream  = "stream"
)
