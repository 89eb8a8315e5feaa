package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"rejoin/cmd/rejoin/internal/bench"
)

// rawCommand makes this program the raw server.
const rawCommand = "raw"

// rowMax bounds one row of one peer: what hangs is void.
const rowMax = 3 * time.Minute

func main() {
	if len(os.Args) == 3 && os.Args[1] == rawCommand {
		exit(serveRaw(os.Args[2]))
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := compare(ctx)
	stop()
	exit(err)
}

func exit(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "peers:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

// measured is what one peer did in one row once.
type measured struct {
	Peer  string `json:"peer"`
	Round int    `json:"round"`
	Curve string `json:"curve,omitempty"` // of which the result is a point
	X     int    `json:"x,omitempty"`     // which
	bench.Result
}

func compare(ctx context.Context) error {
	o := &options{dir: os.TempDir()}
	var names []string
	for _, p := range peers() {
		names = append(names, p.name)
	}
	rows := flag.String("rows", "fan,fan20,rate200,rate2000,idle,resume,replay", "rows, separated by commas")
	curves := flag.String("curves", "", "curves instead of rows, separated by commas, or all")
	list := flag.String("peers", strings.Join(names, ","), "peers, separated by commas; ratios are to the first")
	rounds := flag.Int("n", 5, "rounds: in each every peer does the row once")
	out := flag.String("json", "", "file for every single result, a line of JSON each")
	wrap := flag.String("wrap", "", "command that runs rejoin's server, such as strace with its flags")
	flag.StringVar(&o.bin, "bin", ".", "directory with rejoin, nats-server and centrifugo")
	flag.StringVar(&o.dir, "dir", o.dir, "directory to write to, and so the device")
	flag.BoolVar(&o.quick, "quick", false, "a little of each row")
	flag.Parse()
	o.wrap = strings.Fields(*wrap)
	var err error
	if o.bin, err = filepath.Abs(o.bin); err != nil {
		return err
	}
	chosen, err := choose(strings.Split(*list, ","))
	if err != nil {
		return err
	}
	m, err := bench.ThisMachine(o.dir)
	if err != nil {
		return err
	}
	fmt.Fprintf(os.Stdout, "%d processors, Linux %s, %s, load %.1f, fsync %.2f ms, %d rounds, medians [least–most]\n", m.CPUs, m.Kernel, m.Go, m.Load, m.Fsync, *rounds)
	jobs, err := jobsOf(o, *rows, *curves)
	if err != nil {
		return err
	}
	var all []measured
	for _, j := range jobs {
		of, err := measure(ctx, o, j, chosen, *rounds)
		all = append(all, of...)
		if err := errors.Join(err, save(*out, all)); err != nil {
			return err
		}
		if err := table(os.Stdout, j, chosen, of); err != nil {
			return err
		}
	}
	if slices.ContainsFunc(all, func(x measured) bool { return x.Void != "" }) {
		return errors.New("some results are void")
	}
	return nil
}

func choose(names []string) ([]peer, error) {
	var chosen []peer
	for _, n := range names {
		i := slices.IndexFunc(peers(), func(p peer) bool { return p.name == n })
		if i < 0 {
			return nil, fmt.Errorf("no peer %q", n)
		}
		chosen = append(chosen, peers()[i])
	}
	return chosen, nil
}

func save(path string, all []measured) error {
	if path == "" {
		return nil
	}
	var b []byte
	for _, x := range all {
		line, err := json.Marshal(x)
		if err != nil {
			return err
		}
		b = append(append(b, line...), '\n')
	}
	return os.WriteFile(path, b, 0o600)
}

// A job is a row, or a point of a curve.
type job struct {
	bench.CommonRow
	curve string
	x     int
}

// String is its title.
func (j job) String() string {
	if j.curve == "" {
		return j.Name
	}
	return fmt.Sprintf("%s %d", j.curve, j.x)
}

// can reports whether a peer can do it.
func (j job) can(p peer) bool {
	return !slices.Contains(p.cant, j.Name) && (j.Name != "" || p.own)
}

// jobsOf are the rows of those names, or the points of the curves.
func jobsOf(o *options, rows, curves string) ([]job, error) {
	var jobs []job
	if curves == "" {
		for _, name := range strings.Split(rows, ",") {
			i := slices.IndexFunc(bench.Common, func(r bench.CommonRow) bool { return r.Name == name })
			if i < 0 {
				return nil, fmt.Errorf("no row %q that every server of streams can do", name)
			}
			jobs = append(jobs, job{CommonRow: bench.Common[i]})
		}
		return jobs, nil
	}
	names := strings.Split(curves, ",")
	for _, c := range bench.Curves {
		if curves != "all" && !slices.Contains(names, c.Name) {
			continue
		}
		for _, x := range c.Sizes(bench.Scale{Quick: o.quick}) {
			do := func(ctx context.Context, t bench.Target, sc bench.Scale) ([]bench.Figure, error) {
				return c.Do(ctx, t, sc, x)
			}
			jobs = append(jobs, job{bench.CommonRow{Name: c.Row, Do: do}, c.Name, x})
		}
	}
	if len(jobs) == 0 {
		return nil, fmt.Errorf("no curve %q", curves)
	}
	return jobs, nil
}

// measure has every peer do a job, round after round.
func measure(ctx context.Context, o *options, j job, chosen []peer, rounds int) ([]measured, error) {
	var all []measured
	for round := range rounds {
		for _, p := range chosen {
			if !j.can(p) {
				continue
			}
			fmt.Fprintf(os.Stderr, "%s, round %d of %d: %s\n", j, round+1, rounds, p.name)
			x := measured{Peer: p.name, Round: round + 1, Curve: j.curve, X: j.x, Result: bench.Result{Row: j.Name}}
			err := once(ctx, o, j, p, &x.Result)
			if ctx.Err() != nil {
				return all, context.Cause(ctx)
			}
			if err != nil {
				x.Void = err.Error()
				fmt.Fprintln(os.Stderr, "void:", x.Void)
			}
			all = append(all, x)
		}
	}
	return all, nil
}

// once has a peer do a job, in a process of its own.
func once(ctx context.Context, o *options, j job, p peer, x *bench.Result) (err error) {
	ctx, cancel := context.WithTimeout(ctx, rowMax)
	defer cancel()
	t, stop, err := p.start(ctx, o, j.Name)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stop()) }()
	var tally bench.Tally
	x.Figures, err = j.Do(bench.WithTally(ctx, &tally), t, bench.Scale{Quick: o.quick})
	x.Checked = tally.Checked()
	return err
}
