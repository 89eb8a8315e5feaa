// Asks before every shell command.
export default function (pi: any) {
  pi.on("tool_call", async (event: any, ctx: any) => {
    if (event.toolName !== "bash") return;
    const ok = await ctx.ui.confirm("Run this command?", String(event.input.command));
    if (!ok) return { block: true, reason: "denied by user" };
  });
}
