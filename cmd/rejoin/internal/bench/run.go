package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// Config of a run.
type Config struct {
	Server       ServerConfig // but for its durability
	Durabilities []string
	Rows         []string // empty: all
	Scale        Scale
	Profiles     string            // a directory for a processor profile of the server in each row; empty: none
	Progress     func(text string) // told what is being done; never nil
}

// Report is a run.
type Report struct {
	Version string   `json:"version"`
	Machine Machine  `json:"machine"`
	Quick   bool     `json:"quick,omitempty"`
	Results []Result `json:"results"`
}

// rowMax bounds a row: what does not come by then is lost.
const rowMax = 10 * time.Minute

// env is the server of a row of this program's own.
type env struct {
	Scale
	s *Server
	r *rejoin
}

// restart ends the server and starts another one on its directory.
func (e *env) restart(ctx context.Context, end func() error) error {
	e.r.link.close()
	if err := e.s.Restart(ctx, end); err != nil {
		return err
	}
	r, err := newRejoin(ctx, e.s)
	if err != nil {
		return err
	}
	r.adapter = e.r.adapter
	*e.r = *r
	return nil
}

// Row is a row by its name.
type Row struct {
	Name string
	What string
	do   func(ctx context.Context, e *env) ([]Figure, error)
}

// common is a row that every Target can do.
func common(name string) func(ctx context.Context, e *env) ([]Figure, error) {
	for _, r := range Common {
		if r.Name == name {
			return func(ctx context.Context, e *env) ([]Figure, error) { return r.Do(ctx, e.r, e.Scale) }
		}
	}
	panic("no row " + name)
}

// Rows are all rows, in order.
func Rows() []Row {
	return []Row{
		{rowFan, "1 session × 100 observers, saturated", common(rowFan)},
		{rowFan20, "20 sessions × 10 observers, saturated", common(rowFan20)},
		{rowRate200, "200 events/s × 100 observers", common(rowRate200)},
		{rowRate2000, "2,000 events/s × 100 observers", common(rowRate2000)},
		{rowIdle, "5,000 observers that wait", common(rowIdle)},
		{rowResume, "200 observers resume 5,000 missed events at once", common(rowResume)},
		{rowReplay, "100,000 events to one observer", common(rowReplay)},
		{rowJoin, "join by snapshot, sessions of 1k, 100k, 1M events", joinRow},
		{rowLast100, "the last 100 of 1M events, after a restart", last100},
		{rowSlow, "one reader of 10 KB/s beside 50 fast ones", slowRow},
		{rowJournal, "from the child to the disk, nobody observes", journalRow},
		{rowFlood, "one child floods, nobody observes", flood},
		{rowSessions, "50 sessions × 100 events/s, one observer each", sessionsRow},
		{rowCommand, "commands: client → durable → child's stdin", command},
		{rowRestart, "10,000 sessions on disk, 1,000 live, 1 GB", restartRow},
		{rowFair, "50 sessions × 20 events/s, and one that floods", fair},
		{rowQuiet, "20 quiet sessions × 10 events/s and a flood on one connection", quiet},
	}
}

// ErrNoRow is the error of a row's name that there is not.
var ErrNoRow = errors.New("there is no such row")

// choose are the rows of those names, in order; all when there are none.
func choose(names []string) ([]Row, error) {
	all := Rows()
	for _, n := range names {
		if !slices.ContainsFunc(all, func(r Row) bool { return r.Name == n }) {
			return nil, fmt.Errorf("%w: %q", ErrNoRow, n)
		}
	}
	if len(names) == 0 {
		return all, nil
	}
	return slices.DeleteFunc(all, func(r Row) bool { return !slices.Contains(names, r.Name) }), nil
}

// Run does the rows, each with a server of its own, at every durability before the
// next row. A row that fails is void and the others are done; the error is of what
// is wrong with the run.
func Run(ctx context.Context, cfg Config) (Report, error) {
	var r Report
	rows, err := choose(cfg.Rows)
	if err != nil {
		return r, err
	}
	if cfg.Server.Dir == "" {
		cfg.Server.Dir = os.TempDir()
	}
	if r.Machine, err = ThisMachine(cfg.Server.Dir); err != nil {
		return r, err
	}
	if cfg.Profiles != "" {
		if err := os.MkdirAll(cfg.Profiles, 0o700); err != nil {
			return r, err
		}
	}
	r.Quick = cfg.Scale.Quick
	for _, row := range rows {
		for _, d := range cfg.Durabilities {
			cfg.Progress(fmt.Sprintf("%s at %s: %s", row.Name, d, row.What))
			result := Result{Row: row.Name, Durability: d}
			var compared Tally
			figures, err := doRow(WithTally(ctx, &compared), &cfg, row, d)
			if ctx.Err() != nil {
				return r, context.Cause(ctx)
			}
			result.Figures, result.Checked = figures, compared.Checked()
			if err == nil {
				err = bounded(row.Name, d, figures)
			}
			if err != nil {
				result.Void = err.Error()
				cfg.Progress("void: " + result.Void)
			}
			r.Results = append(r.Results, result)
		}
	}
	return r, nil
}

var errRowMax = fmt.Errorf("bench: a row takes at most %v", rowMax)

func doRow(ctx context.Context, cfg *Config, row Row, durability string) (_ []Figure, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, rowMax, errRowMax)
	defer cancel()
	sc := cfg.Server
	sc.Durability = durability
	s, err := StartServer(ctx, sc)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	e := &env{Scale: cfg.Scale, s: s}
	if e.r, err = newRejoin(ctx, s); err != nil {
		return nil, err
	}
	defer func() { e.r.link.close() }()
	if cfg.Profiles == "" {
		return row.do(ctx, e)
	}
	return profiled(ctx, e, row, filepath.Join(cfg.Profiles, row.Name+"-"+durability+".pprof"))
}

// profileSeconds is how long a profile is taken: the rows' measured time.
const profileSeconds = 4

// profiled does a row while its server is profiled.
func profiled(ctx context.Context, e *env, row Row, path string) ([]Figure, error) {
	taken := make(chan error, 1)
	go func() { taken <- e.s.profile(ctx, path, profileSeconds*time.Second) }()
	figures, err := row.do(ctx, e)
	return figures, errors.Join(err, <-taken)
}

// JSON is the report for programs.
func (r *Report) JSON() ([]byte, error) {
	b, err := json.MarshalIndent(r, "", "  ")
	return append(b, '\n'), err
}

// Void reports whether any row is.
func (r *Report) Void() bool {
	return slices.ContainsFunc(r.Results, func(x Result) bool { return x.Void != "" })
}
