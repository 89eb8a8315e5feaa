// Package readme runs what README.md and docs/operations.md tell people to type.
package readme
