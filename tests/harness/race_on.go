//go:build race

package harness

// RaceDetector says that this test binary, and so the server it builds, has the
// race detector.
const RaceDetector = true

// slowdown stretches every wait under the race detector.
const slowdown = 4
