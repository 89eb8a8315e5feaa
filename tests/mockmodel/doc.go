// Package mockmodel is a model server without a model: it speaks the streaming
// half of OpenAI's Chat Completions as coding agents use it, says what a test
// tells it to and remembers what it was asked.
//
// An answer is a list of steps (Text, Think, Bash, Hold, Cut, Fail). On gives the
// answers to the requests whose newest user message is a prompt, one after the
// other, and the last one again. A request that no On knows is answered by what
// its prompt says:
//
//	run COMMAND   a call of the agent's shell, and after its result a text
//	think TEXT    the thought TEXT, and a text
//	TEXT          "You said: TEXT"
//
// A Gate holds an answer in the middle until the test opens it. Goroutines: those
// of net/http; Start ends them with the test. A Server is safe for concurrent use.
package mockmodel
