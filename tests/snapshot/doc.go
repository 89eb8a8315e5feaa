// Package snapshot tests the reader that folds logs on a real journal.
package snapshot
