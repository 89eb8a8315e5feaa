package main

import (
	"fmt"
	"os"
)

func main() {
	costs, err := readCosts()
	if err == nil {
		_, err = os.Stdout.WriteString(tables(costs))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
