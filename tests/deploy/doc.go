// Package deploy holds deploy/ to account: what no linter knows (every flag that is
// used there exists, images are pinned, health checks ask where the endpoint is),
// and HAProxy and nginx with a server behind them. Those two run where they are
// installed; with REJOIN_REQUIRE_DEPLOY=1, which .ci/deploy sets, they must be.
package deploy
