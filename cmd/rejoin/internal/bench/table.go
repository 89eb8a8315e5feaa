package bench

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
)

// Write prints the report for people: a line per figure, a column per durability.
func (r *Report) Write(w io.Writer) error {
	m := r.Machine
	if _, err := fmt.Fprintf(w, "rejoin %s, %d processors, Linux %s, %s, load %.1f, fsync %.2f ms\n", r.Version, m.CPUs, m.Kernel, m.Go, m.Load, m.Fsync); err != nil {
		return err
	}
	if r.Quick {
		if _, err := fmt.Fprintln(w, "--quick: the figures mean nothing, that they are there does"); err != nil {
			return err
		}
	}
	var levels []string
	for _, x := range r.Results {
		if !slices.Contains(levels, x.Durability) {
			levels = append(levels, x.Durability)
		}
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintf(t, "\n\t%s\tmust\taim\n", strings.Join(levels, "\t"))
	for _, row := range Rows() {
		r.writeRow(t, row, levels)
	}
	return t.Flush()
}

func (r *Report) writeRow(t io.Writer, row Row, levels []string) {
	at := map[string]Result{} // by durability
	var names []string
	for _, x := range r.Results {
		if x.Row != row.Name {
			continue
		}
		at[x.Durability] = x
		for _, f := range x.Figures {
			if !slices.Contains(names, f.Name) {
				names = append(names, f.Name)
			}
		}
	}
	if len(at) == 0 {
		return
	}
	fmt.Fprintf(t, "%s: %s\n", row.Name, row.What)
	for _, name := range names {
		cells := make([]string, 0, len(levels))
		var must, aim *Bound
		var unit string
		for _, l := range levels {
			i := slices.IndexFunc(at[l].Figures, func(f Figure) bool { return f.Name == name })
			if i < 0 || at[l].Void != "" {
				cells = append(cells, "–")
				continue
			}
			f := at[l].Figures[i]
			cell := Number(f.Value) + " " + f.Unit
			if !f.Must.holds(f.Value) {
				cell += " !"
			}
			cells = append(cells, cell)
			unit = f.Unit
			if f.Must != nil {
				must, aim = f.Must, f.Aim
			}
		}
		fmt.Fprintf(t, "  %s\t%s\t%s\t%s\n", name, strings.Join(cells, "\t"), must.text(unit), aim.text(unit))
	}
	for _, l := range levels {
		if n := at[l].Checked.Retries; n > 0 {
			fmt.Fprintf(t, "  refused for the moment and asked again, at %s: %d\n", l, n)
		}
		if v := at[l].Void; v != "" {
			fmt.Fprintf(t, "  void at %s: %s\n", l, strings.ReplaceAll(v, "\n", " "))
		}
	}
}

func (b *Bound) text(unit string) string {
	if b == nil {
		return ""
	}
	sign := "≤ "
	if b.AtLeast {
		sign = "≥ "
	}
	return sign + Number(b.Value) + " " + unit
}

// Number is v with three figures, thousands as k and millions as M.
func Number(v float64) string {
	switch a := math.Abs(v); {
	case a >= 1e6:
		return strconv.FormatFloat(v/1e6, 'f', 2, 64) + "M"
	case a >= 1e4:
		return strconv.FormatFloat(v/1e3, 'f', 0, 64) + "k"
	case a >= 100:
		return strconv.FormatFloat(v, 'f', 0, 64)
	default:
		return strconv.FormatFloat(v, 'g', 3, 64)
	}
}
