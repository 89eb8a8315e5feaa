package broker

import (
	"testing"

	"rejoin/journal"
)

// TestReservationsThatGo: a reservation that another broker removes while they are
// read is none, and no reason not to start.
func TestReservationsThatGo(t *testing.T) {
	all := make(reservations)
	for _, e := range []journal.Entry{
		{Key: "default.a", Value: []byte(`{"sessionId":"s","paramsHash":"h","at":7}`), Revision: 1},
		{Key: "default.b", Value: []byte(`{"sessionId":"t"}`), Revision: 2},
		{Key: "default.b", Revision: 3, Deleted: true},
		{Key: "default.c", Revision: 4, Deleted: true},
	} {
		if err := all.take(e); err != nil {
			t.Fatalf("%s at revision %d: %v", e.Key, e.Revision, err)
		}
	}
	if len(all) != 1 || all["default.a"] != (reservation{SessionID: "s", ParamsHash: "h", At: 7, revision: 1}) {
		t.Errorf("reservations: %+v", all)
	}
	if err := all.take(journal.Entry{Key: "default.d", Value: []byte("{"), Revision: 5}); err == nil {
		t.Error("what is none was taken")
	}
}
