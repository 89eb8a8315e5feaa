// Command scale says on paper what a cluster of a size needs: it plays the sessions
// and observers of a scenario second by second, charges each unit of work what
// costs.json says that it was measured to cost, and prints the tables of
// docs/scale.md.
//
//	go run ./tests/scale            the tables
//	SCALE_MEASURE=1 go test -count=1 -v -run TestMeasure ./tests/scale
//
// The second measures the costs again; costs.json is written by hand from it.
package main
