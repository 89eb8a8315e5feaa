package main

import (
	"path/filepath"
	"slices"

	"rejoin/agent/pi"
	"rejoin/agent/rpi"
	"rejoin/broker"
)

// Variables by which known agents are told of their provider, its key and their
// own files. Whoever starts the server with one of them set means the agent to
// have it.
var (
	envAnthropic = []string{"ANTHROPIC_*", "AWS_BEARER_TOKEN_BEDROCK", "AWS_PROFILE", "AWS_REGION", "CLOUD_ML_REGION", "GOOGLE_APPLICATION_CREDENTIALS", "VERTEX_*"}
	envOpenAI    = []string{"OPENAI_*", "AZURE_OPENAI_*"}
	envOthers    = []string{
		"AI_GATEWAY_API_KEY", "CEREBRAS_API_KEY", "COPILOT_GITHUB_TOKEN", "DEEPSEEK_API_KEY", "GEMINI_*", "GOOGLE_CLOUD_*", "GOOGLE_GEMINI_*", "GROQ_API_KEY",
		"HF_TOKEN", "KIMI_API_KEY", "MINIMAX_API_KEY", "MISTRAL_API_KEY", "OPENCODE_API_KEY", "OPENROUTER_API_KEY", "XAI_API_KEY", "ZAI_API_KEY",
	}
)

// envKnown is the envAllow of agents whose configuration has none, by the name of
// their adapter or of their program.
var envKnown = map[string][]string{
	pi.Name:  slices.Concat([]string{"PI_*"}, envAnthropic, envOpenAI, envOthers),
	rpi.Name: slices.Concat([]string{"PI_*", "RPI_*"}, envAnthropic, envOpenAI, envOthers),
	"claude": slices.Concat([]string{"CLAUDE_*", "DISABLE_AUTOUPDATER", "DISABLE_ERROR_REPORTING", "DISABLE_TELEMETRY"}, envAnthropic),
	"codex":  slices.Concat([]string{"CODEX_*"}, envOpenAI),
}

// envOfAgent is what an agent is allowed that its configuration says nothing of:
// not nil, so that it is seen in what --print-config prints.
func envOfAgent(a broker.AgentConfig) []string {
	if known, ok := envKnown[a.Adapter]; ok {
		return slices.Clone(known)
	}
	if len(a.Argv) > 0 {
		if known, ok := envKnown[filepath.Base(a.Argv[0])]; ok {
			return slices.Clone(known)
		}
	}
	return []string{}
}
