// Package member runs three servers that keep the journal together, each a member of
// the cluster of embedded servers, and takes them away: killed one by one and all at
// once, with stores that are damaged, gone, or another's.
package member
