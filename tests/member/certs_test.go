package member_test

import (
	"time"

	"rejoin/tests/harness"
)

// shows returns the flags of a member that shows a certificate of one authority, which
// ends then, and trusts the other one.
func shows(of, trusts *harness.Authority, ends time.Time) []string {
	f := of.IssueUntil("member", ends)
	return []string{"--cluster-ca", trusts.Path, "--cluster-cert", f.Cert, "--cluster-key", f.Key}
}
