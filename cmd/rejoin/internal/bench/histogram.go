package bench

import (
	"math"
	"slices"
	"time"
)

// Histogram counts durations in steps of 2.2 % from 1 µs to about 4 minutes. It is
// for one goroutine.
type Histogram struct {
	counts [histogramSteps]uint32
	total  uint64
}

const (
	histogramSteps = 900
	stepsPerE      = 46 // per factor e
)

func (h *Histogram) add(d time.Duration) {
	i := 0
	if d > time.Microsecond {
		i = min(histogramSteps-1, int(math.Log(float64(d)/1000)*stepsPerE))
	}
	h.counts[i]++
	h.total++
}

func (h *Histogram) merge(o *Histogram) {
	for i, c := range o.counts {
		h.counts[i] += c
	}
	h.total += o.total
}

// quantile is in ms; 0 when nothing was counted.
func (h *Histogram) quantile(q float64) float64 {
	var run uint64
	for i, c := range h.counts {
		run += uint64(c)
		if c > 0 && float64(run) >= q*float64(h.total) {
			return math.Exp((float64(i)+0.5)/stepsPerE) / 1000
		}
	}
	return 0
}

// median of durations, in ms; 0 of none.
func median(all []time.Duration) float64 { return rank(all, 0.5) }

// rank is a quantile of durations, in ms; 0 of none.
func rank(all []time.Duration, q float64) float64 {
	if len(all) == 0 {
		return 0
	}
	s := slices.Sorted(slices.Values(all))
	return ms(s[min(len(s)-1, int(float64(len(s))*q))])
}

func ms(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1e6 }

// Median of figures; 0 of none.
func Median(all []float64) float64 {
	if len(all) == 0 {
		return 0
	}
	s := slices.Sorted(slices.Values(all))
	return (s[(len(s)-1)/2] + s[len(s)/2]) / 2
}
