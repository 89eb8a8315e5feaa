// Package pi_test drives the real pi, installed from npm by install.sh, through
// the real `rejoin serve`, against a model that says what the test wants
// (tests/mockmodel). Each test has a server and a home directory of its own.
//
// pi is looked for in the folder REJOIN_PI_DIR, or where install.sh puts it by
// default. Without it the tests skip and say so; with REJOIN_REQUIRE_PI=1 that is
// a failure.
package pi_test
