package model

import (
	"errors"
	"fmt"
)

// Check is one promise that can be seen from outside.
type Check struct {
	Promise string
	Name    string
	Run     func(*History) error
}

// Checks are all there are, in the order in which a breach explains most.
func Checks() []Check {
	return []Check{
		{"I-J1", "CheckDense", CheckDense},
		{"I-J3", "CheckRunsGrow", CheckRunsGrow},
		{"I-G1", "CheckOrder", CheckOrder},
		{"I-A1", "CheckIsolation", CheckIsolation},
		{"I-A1", "CheckSecrets", CheckSecrets},
		{"I-J4", "CheckExactlyOnce", CheckExactlyOnce},
		{"I-S3", "CheckAttach", CheckAttach},
		{"I-J2", "CheckDurable", CheckDurable},
		{"I-G3", "CheckSameBytes", CheckSameBytes},
		{"I-B1", "CheckOnceCommand", CheckOnceCommand},
		{"I-B2", "CheckOneOwner", CheckOneOwner},
		{"I-B3", "CheckOutcome", CheckOutcome},
		{"I-W1", "CheckInputFirst", CheckInputFirst},
		{"I-W2", "CheckOutputComplete", CheckOutputComplete},
		{"I-P1", "CheckBytes", CheckBytes},
		{"I-P2", "CheckLineLimit", CheckLineLimit},
		{"I-W3", "CheckNoOrphans", CheckNoOrphans},
		{"I-S2", "CheckState", CheckState},
		{"I-J6", "CheckAsked", CheckAsked},
	}
}

// Breach is a broken promise.
type Breach struct {
	Promise string
	Check   string
	Session string
	Err     error
}

// Error says which promise of which session is broken, and how.
func (b *Breach) Error() string {
	return fmt.Sprintf("broke %s: %s of session %s: %v", b.Promise, b.Check, b.Session, b.Err)
}

// Unwrap returns the cause.
func (b *Breach) Unwrap() error { return b.Err }

// Validate runs every check; each breach is a *Breach, all are joined.
func (h *History) Validate() error { return h.run(Checks()) }

// ValidatePart runs the checks that do not need the whole log, for a history that cannot be
// completed.
func (h *History) ValidatePart() error {
	return h.run([]Check{
		{"I-J3", "CheckRunsGrow", CheckRunsGrow},
		{"I-G1", "CheckOrder", CheckOrder},
		{"I-A1", "CheckIsolation", CheckIsolation},
		{"I-J4", "CheckExactlyOnce", CheckExactlyOnce},
		{"I-S3", "CheckAttach", CheckAttach},
		{"I-G3", "CheckSameBytes", CheckSameBytes},
		{"I-B2", "CheckOneOwner", CheckOneOwner},
	})
}

func (h *History) run(checks []Check) error {
	var all []error
	for _, c := range checks {
		if err := c.Run(h); err != nil {
			all = append(all, &Breach{Promise: c.Promise, Check: c.Name, Session: h.Session, Err: err})
		}
	}
	return errors.Join(all...)
}
