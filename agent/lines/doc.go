// Package lines is the adapter for programs that read and print lines of text:
// a command is a JSON string whose text is the line. It starts no goroutine.
package lines
