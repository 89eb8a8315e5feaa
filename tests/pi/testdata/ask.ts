// Asks before every shell command; before one with the word "soon" it does not wait long.
export default function (pi: any) {
  pi.on("tool_call", async (event: any, ctx: any) => {
    if (event.toolName !== "bash") return;
    const command = String(event.input.command);
    const patience = /\bsoon\b/.test(command) ? { timeout: 400 } : {};
    const ok = await ctx.ui.confirm("Run this command?", command, patience);
    if (!ok) return { block: true, reason: "denied by user" };
  });
}
