package pi

// Name is what configurations call this adapter.
const Name = "pi"

// An Adapter is ready to use as its zero value.
type Adapter struct{}

// Name returns "pi".
func (Adapter) Name() string { return Name }

// JSONLines is true.
func (Adapter) JSONLines() bool { return true }
