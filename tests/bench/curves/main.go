// Command curves draws what tests/bench/peers/run.sh -curves … -json FILE measured:
// a picture per curve and figure, a line per server. It is a module of its own, so
// that go.mod stays the product's.
package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/plotutil"
	"gonum.org/v1/plot/vg"
)

// point is a line of the measurements.
type point struct {
	Peer    string
	Curve   string
	X       int
	Void    string
	Figures []struct {
		Name, Unit string
		Value      float64
	}
}

// picture is one figure of one curve: the values of each peer by size.
type picture struct {
	curve, figure, unit string
	peers               []string // in the order of their first point
	values              map[string]map[int][]float64
}

// axes are what the sizes of a curve are.
var axes = map[string]string{
	"observers":   "observers of one saturated session",
	"rate":        "events/s, 100 observers",
	"connections": "observers that wait",
	"sessions":    "live sessions",
	"history":     "events of the session",
}

// without are figures that no picture is made of.
var without = []string{"p50 of the later half"}

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: curves POINTS.jsonl DIRECTORY")
		os.Exit(2)
	}
	if err := draw(os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, "curves:", err)
		os.Exit(1)
	}
}

func draw(from, to string) error {
	b, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	pictures, err := collect(b)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(to, 0o755); err != nil { //nolint:gosec // pictures are for everybody
		return err
	}
	for _, p := range pictures {
		if err := p.save(to); err != nil {
			return err
		}
	}
	return nil
}

// collect sorts the points that hold into pictures.
func collect(b []byte) ([]*picture, error) {
	var all []*picture
	for line := range bytes.Lines(b) {
		var pt point
		if err := json.Unmarshal(line, &pt); err != nil {
			return nil, err
		}
		if pt.Void != "" || pt.Curve == "" {
			continue
		}
		for _, f := range pt.Figures {
			if slices.Contains(without, f.Name) {
				continue
			}
			i := slices.IndexFunc(all, func(p *picture) bool { return p.curve == pt.Curve && p.figure == f.Name })
			if i < 0 {
				i = len(all)
				all = append(all, &picture{curve: pt.Curve, figure: f.Name, unit: f.Unit, values: map[string]map[int][]float64{}})
			}
			all[i].add(pt.Peer, pt.X, f.Value)
		}
	}
	return all, nil
}

func (p *picture) add(peer string, x int, v float64) {
	if p.values[peer] == nil {
		p.peers = append(p.peers, peer)
		p.values[peer] = map[int][]float64{}
	}
	p.values[peer][x] = append(p.values[peer][x], v)
}

// line is the medians of a peer.
func (p *picture) line(peer string) plotter.XYs {
	var line plotter.XYs
	for x, v := range p.values[peer] {
		slices.Sort(v)
		line = append(line, plotter.XY{X: float64(x), Y: max(v[len(v)/2], 1e-3)}) // a logarithm has no 0
	}
	slices.SortFunc(line, func(a, b plotter.XY) int { return int(a.X) - int(b.X) })
	return line
}

// save writes it as CURVE-FIGURE.svg, both axes logarithmic.
func (p *picture) save(dir string) error {
	g := plot.New()
	g.Title.Text = p.figure
	g.X.Label.Text, g.Y.Label.Text = axes[p.curve], p.unit
	g.X.Scale, g.Y.Scale = plot.LogScale{}, plot.LogScale{}
	g.X.Tick.Marker, g.Y.Tick.Marker = plot.LogTicks{Prec: -1}, plot.LogTicks{Prec: -1}
	g.Add(plotter.NewGrid())
	g.Legend.Top, g.Legend.Left = true, true
	var lines []any
	for _, peer := range p.peers {
		lines = append(lines, peer, p.line(peer))
	}
	if err := plotutil.AddLinePoints(g, lines...); err != nil {
		return fmt.Errorf("%s of %s: %w", p.figure, p.curve, err)
	}
	return g.Save(14*vg.Centimeter, 9*vg.Centimeter, filepath.Join(dir, p.name()))
}

func (p *picture) name() string {
	plain := func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z' || r >= '0' && r <= '9':
			return r
		case r == ' ':
			return '-'
		}
		return -1
	}
	return p.curve + "-" + strings.Map(plain, strings.ToLower(p.figure)) + ".svg"
}
