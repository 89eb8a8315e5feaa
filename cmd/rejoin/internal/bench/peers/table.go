package main

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"rejoin/cmd/rejoin/internal/bench"
)

// table prints a job: a line per figure, a column per peer, and behind each median
// how many times the first peer's it is.
func table(w io.Writer, j job, chosen []peer, all []measured) error {
	var b strings.Builder
	fmt.Fprintf(&b, "\n**%s**\n\n| |", j)
	var names []string
	for _, p := range chosen {
		if j.can(p) {
			names = append(names, p.name)
			fmt.Fprintf(&b, " %s |", p.name)
		}
	}
	b.WriteString("\n|---|" + strings.Repeat("---|", len(names)) + "\n")
	for _, f := range figures(all) {
		fmt.Fprintf(&b, "| %s, %s |", f.Name, f.Unit)
		first := 0.0
		for i, name := range names {
			cell, median := cellOf(all, name, f.Name)
			if i == 0 {
				first = median
			} else if first > 0 && median > 0 {
				cell += fmt.Sprintf(" = %.2f×", median/first)
			}
			fmt.Fprintf(&b, " %s |", cell)
		}
		b.WriteByte('\n')
	}
	for _, x := range all {
		if x.Void != "" {
			fmt.Fprintf(&b, "\n%s, round %d, is void: %s\n", x.Peer, x.Round, x.Void)
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// figures are those that any peer has, in order.
func figures(all []measured) []bench.Figure {
	var list []bench.Figure
	for _, x := range all {
		for _, f := range x.Figures {
			if !slices.ContainsFunc(list, func(g bench.Figure) bool { return g.Name == f.Name }) {
				list = append(list, f)
			}
		}
	}
	return list
}

// cellOf is the median of a peer's figure with its range; void rounds do not count.
func cellOf(all []measured, peer, figure string) (string, float64) {
	var values []float64
	for _, x := range all {
		if x.Peer != peer || x.Void != "" {
			continue
		}
		for _, f := range x.Figures {
			if f.Name == figure {
				values = append(values, f.Value)
			}
		}
	}
	if len(values) == 0 {
		return "void", 0
	}
	m := bench.Median(values)
	if len(values) == 1 {
		return bench.Number(m), m
	}
	return fmt.Sprintf("%s [%s–%s]", bench.Number(m), bench.Number(slices.Min(values)), bench.Number(slices.Max(values))), m
}
